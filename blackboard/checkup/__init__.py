"""What the doctor does: gathers evidence, names what is wrong, mends what is safe."""
