"""Work in processes of their own: for native code that may crash, hang, or share no process with others.

A handler (see ``serve.py``) is a file that the process runs; ``WorkerPool`` keeps a few such processes warm, sends them
requests, ends those that take too long, and outlives whatever happens to them.
"""
