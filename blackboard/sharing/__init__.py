"""What workers share out among them: the partitions of groups, and the leadership of elections."""
