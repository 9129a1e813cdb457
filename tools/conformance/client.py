"""Makes the system calls that it is told over a local socket.

The same as client.c, for machines without a compiler: see there. What is not
mapped is found out with a system call instead of a fault.
"""
import ctypes
import errno
import os
import socket
import struct
import sys
import threading

CALL, FORK, LOAD, STORE, ISSUE, TREE = range(1, 7)
MESSAGE = struct.Struct("<8Q")
RESULT = struct.Struct("<q")
REQUEST = struct.Struct("<iIQq")
LIST = struct.Struct("<QQQ")

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_uint64]
for move in (libc.process_vm_readv, libc.process_vm_writev):
    move.restype = ctypes.c_ssize_t
    move.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]


def failed(value):
    return -ctypes.get_errno() if value == -1 else value


def reach():
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect("\0" + sys.argv[1])
    return made


def take(length):
    parts = bytearray()
    while len(parts) < length:
        part = control.recv(length - len(parts))
        if not part:
            os._exit(0)
        parts += part
    return bytes(parts)


def move(call, address, length, local):
    """Copies between a buffer and an address that may be bad."""
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(local), length)
    there = (ctypes.c_uint64 * 2)(address, length)
    return 0 if length == 0 or call(os.getpid(), here, 1, there, 1, 0) == length else -errno.EFAULT


def load(address, length):
    local = ctypes.create_string_buffer(max(length, 1))
    value = move(libc.process_vm_readv, address, length, local)
    return RESULT.pack(value) + (local.raw[:length] if value == 0 else b"")


def issue(address):
    requests, count, _ = LIST.unpack(ctypes.string_at(address, LIST.size))
    done = 0
    while done < count:
        place = requests + done * REQUEST.size
        fd, number, argument, _ = REQUEST.unpack(ctypes.string_at(place, REQUEST.size))
        value = failed(libc.ioctl(fd, number, argument))
        ctypes.c_int64.from_address(place + 16).value = value
        done += 1
        if value != 0:
            break
    ctypes.c_uint64.from_address(address + 16).value = done


def issue_all(lists, count):
    threads = [threading.Thread(target=issue, args=(lists + LIST.size * each,)) for each in range(count)]
    if count == 1:
        issue(lists)
        return 0
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


def tree(directory):
    try:
        os.listdir(directory)
    except OSError as error:
        return RESULT.pack(-error.errno)
    found = bytearray()
    for folder, _, files in os.walk(directory):
        for file in files:
            path = os.path.join(folder, file)
            try:
                with open(path, "rb") as opened:
                    text = opened.read()
            except OSError:
                continue
            name = os.fsencode(os.path.relpath(path, directory))
            found += struct.pack("<II", len(name), len(text)) + name + text
    return RESULT.pack(len(found)) + found


def fork():
    global control
    child = os.fork()
    if child == 0:
        control.close()
        control = reach()
        return b""
    return RESULT.pack(child)


os.setsid()
control = reach()
while True:
    what, *words = MESSAGE.unpack(take(MESSAGE.size))
    if what == CALL:
        answer = RESULT.pack(failed(libc.syscall(*(ctypes.c_uint64(word) for word in words[:7]))))
    elif what == FORK:
        answer = fork()
    elif what == LOAD:
        answer = load(words[0], words[1])
    elif what == STORE:
        local = ctypes.create_string_buffer(take(words[1]), max(words[1], 1))
        answer = RESULT.pack(move(libc.process_vm_writev, words[0], words[1], local))
    elif what == ISSUE:
        answer = RESULT.pack(issue_all(words[0], words[1]) or 0)
    elif what == TREE:
        answer = tree(ctypes.string_at(words[0]))
    else:
        os._exit(9)
    control.sendall(answer)
