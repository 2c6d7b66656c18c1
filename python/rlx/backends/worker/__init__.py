"""Work in processes of their own: for native code that may crash, hang, or share no process with others.

A *handler* is a Python file with a function `make(*arguments)`, which loads what is needed and returns a function from a
request's header (what JSON takes) and body (bytes) to those of its reply:

    def make(library):
        compiler = ctypes.CDLL(library)
        def answer(header, body):
            return {"outcome": "ok"}, compile(compiler, header["flags"], body)
        return answer

It runs in a process that has nothing of RLX, and no other module than those of the standard library unless the command adds to
`sys.path`. The other side keeps a few such processes warm:

    pool = WorkerPool()
    command = Command(handler.__file__, (library,))
    reply = pool.request(command, {"kind": "compile", "flags": []}, module, timeout_s=60)

`request` may be called from several threads, and be interrupted. What goes wrong in the process is a `WorkerDied`, which says
whether it crashed, was killed, or took too long and was ended, and what it printed; the next request gets another process.
No process outlives its parent, and none is left at work after an interrupt. Compilers that may not share a process are in
different commands.

`pool.py` and `process.py` are the caller's side, `serve.py` is the process's own and has the protocol between them,
`folder.py` makes the process's temporary folder, `shielded.py` keeps interrupts out.
"""
