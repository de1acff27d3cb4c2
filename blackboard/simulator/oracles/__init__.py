"""What must hold of a board at the moment of every single write, whoever made it.

An oracle is called with each `Change` and raises `Violation`. It remembers what no row says: the
fences that were used, the runs that completed, what a person was promised.

    whole      an active item has one token, another none; running or not, the rows agree
    locks      fences rise; only the holder frees a lock, or whoever finds it stale
    history    one row a fence; a run completes once, a slot is good once; late is late
    transitions  what follows of a run: slots, attempts, params, as the document has it
    plans      what a request makes of a plan; and that it reaches the life that it read
    runs       handlers have a lock that is trusted, their params, and are stopped in time
    priority   what is stale goes before what waits
    people     what people asked for stays, and happens once
    limits     no etag comes twice; no batch is refused again and again for one cause
    quiet      nobody holds what it does not know; once faults stop, what is due starts
"""
