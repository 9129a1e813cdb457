"""Carries out a script on the node with fcntl, os and ctypes. See README.md."""
import ctypes
import fcntl
import os
import stat
import sys

BASE, ARENA = 0x200000000000, 1 << 20
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE = 1, 2, 0x20, 0x100000
FAILED = 2**64 - 1

assert libc.mmap(BASE, ARENA, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == BASE
arena = (ctypes.c_ubyte * ARENA).from_address(BASE)
view = memoryview(arena).cast("B")
fds, maps = {}, {}


def attempt(action):
    try:
        return action()
    except OSError as error:
        return -error.errno


def named(table, name, action):
    result = attempt(action)
    table[name] = result
    return min(result, 0)


def ioctl(fd, request, offset, size):
    # fcntl hands the kernel a copy of a small buffer; a long one is passed as it is.
    return attempt(lambda: fcntl.ioctl(fds[fd], request, view[offset : offset + size], True))


def raw_ioctl(fd, request, address):
    result = libc.ioctl(fds[fd], request, address)
    return -ctypes.get_errno() if result == -1 else result


def map_node(name, fd, length, protection, pa):
    at = libc.mmap(None, length, protection, MAP_SHARED, fds[fd], pa)
    if at == FAILED:
        return -ctypes.get_errno()
    maps[name] = (at, length, memoryview((ctypes.c_ubyte * length).from_address(at)).cast("B"))
    return 0


def unmap(name):
    at, length, _ = maps.pop(name)
    return libc.munmap(at, length)


def status(path):
    def ask():
        s = os.stat(path)
        kind = "char" if stat.S_ISCHR(s.st_mode) else "dir" if stat.S_ISDIR(s.st_mode) else "file"
        numbers = (os.major(s.st_rdev), os.minor(s.st_rdev)) if kind == "char" else (0, 0)
        return "%s %u:%u" % (kind, *numbers)

    return attempt(ask)


def fnv(data):
    h = 2166136261
    for byte in data:
        h = (h ^ byte) * 16777619 & 0xFFFFFFFF
    return h


for line in sys.stdin:
    op, *words = line.split()
    numbers = [int(word) if word.isdigit() else word for word in words]
    out = None
    if op == "o":
        out = named(fds, numbers[0], lambda: os.open(words[1], numbers[2]))
    elif op == "c":
        out = attempt(lambda: os.close(fds[numbers[0]]) or 0)
    elif op == "d":
        out = named(fds, numbers[1], lambda: os.dup(fds[numbers[0]]))
    elif op == "w":
        data = bytes.fromhex(words[1])
        view[numbers[0] : numbers[0] + len(data)] = data
    elif op == "p":
        at, length, seed = numbers
        view[at : at + length] = bytes((i * 7 + (i >> 8) * 13 + seed) & 255 for i in range(length))
    elif op == "i":
        out = ioctl(*numbers)
    elif op == "a":
        out = raw_ioctl(*numbers)
    elif op == "r":
        out = bytes(view[numbers[0] : numbers[0] + numbers[1]]).hex()
    elif op == "h":
        out = fnv(view[numbers[0] : numbers[0] + numbers[1]])
    elif op == "m":
        out = map_node(*numbers)
    elif op == "l":
        out = bytes(maps[numbers[0]][2][numbers[1] : numbers[1] + numbers[2]]).hex()
    elif op == "s":
        data = bytes.fromhex(words[2])
        maps[numbers[0]][2][numbers[1] : numbers[1] + len(data)] = data
    elif op == "u":
        out = unmap(numbers[0])
    elif op == "t":
        out = status(words[0])
    elif op == "g":
        out = os.getpid()
    elif op == "f":
        sys.stdout.flush()
    if out is not None:
        print(out)
