"""Work in separate processes: for native code that may crash or hang, or that cannot share a process with other code.

A *handler* is a Python file with a function `make(*arguments)`. It loads the native code and returns a function from the header
(a JSON object) and the body (bytes) of a request to those of the reply:

    def make(library):
        compiler = ctypes.CDLL(library)
        def answer(header, body):
            return {"outcome": "ok"}, compile(compiler, header["flags"], body)
        return answer

It runs in a process without RLX, where only the standard library can be imported, unless the command adds folders to
`sys.path`. The caller keeps a few of these processes running:

    pool = WorkerPool()
    command = Command(handler.__file__, (library,))
    reply = pool.request(command, {"kind": "compile", "flags": []}, module, timeout_s=60)

`request` may be called from several threads, and may be interrupted. If the process ends, `WorkerDied` is raised. The error has
the cause (a crash, a signal or a timeout) and the output of the process; the next request gets another process.
`HandlerFailed` means that the handler raised an exception; its process continues. No process outlives its parent, and an
interrupt ends the work. Compilers that cannot share a process have different commands.

`pool.py` and `process.py` are the caller's side. `serve.py` is the side of the process, and defines the protocol. `folder.py`
creates the temporary folder of a process, and `shielded.py` protects calls from interrupts.
"""
