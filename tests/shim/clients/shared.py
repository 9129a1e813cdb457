"""Two programs on one machine. Argument: first or second. They take turns over standard input and output."""
import ctypes
import errno
import fcntl
import os
import struct
import sys

ALLOC, GET_PA, COPY, APPS, MARK = 0x80384E66, 0x80084E19, 0xC0284E18, 0x80084E07, 0x80084E55


def alloc(fd):
    handle = ctypes.c_uint64(0)
    fcntl.ioctl(fd, ALLOC, struct.pack("<QQIIIIIIQ", 65536, 0, 0, 0, 0, 0, 9, 0, ctypes.addressof(handle)))
    return handle.value


def copy(fd, handle, data, to_device):
    buffer = ctypes.create_string_buffer(bytes(data), len(data))
    fcntl.ioctl(fd, COPY, struct.pack("<QQQQII", handle, ctypes.addressof(buffer), len(data), 0, to_device, 0))
    return buffer.raw


def processes(fd):
    apps = ctypes.create_string_buffer(struct.pack("<HHII", 2, 0, 16, 0), 16 + 16 * 152)
    assert ctypes.CDLL(None).ioctl(fd, ctypes.c_ulong(APPS), apps) == 0
    return struct.unpack_from("<I", apps, 8)[0]


def turn(text):
    print(text, flush=True)
    return sys.stdin.readline().strip()


fd = os.open("/dev/neuron0", os.O_RDWR)
handle = alloc(fd)
said = turn("%d %d" % (os.getpid(), handle))
if sys.argv[1] == "first":
    copy(fd, handle, b"from the first program", 1)
    said = turn("written")
    # The second program has ended; its chunk is gone, ours is not.
    assert processes(fd) == 1, processes(fd)
    print(copy(fd, handle, bytes(22), 0).decode(), alloc(fd), flush=True)
else:
    other = int(said)
    assert other != handle and processes(fd) == 2
    assert copy(fd, other, bytes(22), 0) == b"from the first program", "handles are not private"
    children = []
    for _ in range(14):
        down, up = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            os.open("/dev/neuron0", os.O_RDWR)
            os.write(up[1], b"x")
            os.read(down[0], 1)
            os._exit(0)
        os.read(up[0], 1)
        children.append((pid, down[1]))
    assert processes(fd) == 16
    pid = os.fork()
    if pid == 0:
        try:
            os.open("/dev/neuron0", os.O_RDWR)
        except OSError as error:
            os.open("/dev/neuron0", os.O_WRONLY)
            os._exit(error.errno)
        os._exit(0)
    busy = os.WEXITSTATUS(os.waitpid(pid, 0)[1])
    for pid, wake in children:
        os.write(wake, b"x")
        os.waitpid(pid, 0)
    assert processes(fd) == 2
    turn("busy" if busy == errno.EBUSY else "not busy %d" % busy)
