"""Work in separate processes: for native code that may crash or hang, or that cannot share a process with other code.

A *handler* is a Python file with a function `make(*arguments)`. It loads the native code and returns a function from the header
(a JSON object) and the body (bytes) of a request to those of the reply:

    def make(library):
        compiler = ctypes.CDLL(library)
        def answer(header, body):
            return {"outcome": "ok"}, compile(compiler, header["flags"], body)
        return answer

It runs in a process without RLX, where only the standard library can be imported, unless the command adds folders to
`sys.path`. The caller keeps a few such processes running:

    pool = WorkerPool()
    command = Command(handler.__file__, (library,))
    reply = pool.request(command, {"kind": "compile", "flags": []}, module, timeout_s=60)

`request` may be called from several threads, and may be interrupted. If the process ends, `WorkerDied` is raised. It says
whether the process crashed, was killed, or took too long and was ended, and what it printed; the next request gets another
process. `HandlerFailed` says that the handler raised an exception; its process goes on. No process outlives its parent, and
after an interrupt none goes on working. Compilers that cannot share a process have different commands.

`pool.py` and `process.py` are the side of the caller. `serve.py` is the side of the process, and has the protocol. `folder.py`
makes the temporary folder of a process, `shielded.py` protects calls from interrupts.
"""
