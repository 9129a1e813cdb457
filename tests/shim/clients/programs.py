"""What programs do with descriptors, processes and paths besides requests. Argument: which part. Prints "ok"."""
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct
import subprocess
import sys
import threading

ALLOC, FREE, GET_PA, VERSION, APP_PID = 0x80384E66, 0x80084E16, 0x80084E19, 0x40084E5D, 0x80044E06
libc = ctypes.CDLL(None, use_errno=True)


def node(flags=os.O_RDWR, device=0):
    return os.open("/dev/neuron%d" % device, flags)


def errno_of(action, *words):
    try:
        action(*words)
        return 0
    except OSError as error:
        return error.errno


def alloc(fd, size=4096):
    handle = ctypes.c_uint64(0)
    fcntl.ioctl(fd, ALLOC, struct.pack("<QQIIIIIIQ", size, 0, 0, 0, 0, 0, 9, 0, ctypes.addressof(handle)))
    return handle.value


def address(fd, handle):
    pa = ctypes.c_uint64(0)
    fcntl.ioctl(fd, GET_PA, struct.pack("<QQ", handle, ctypes.addressof(pa)))
    return pa.value


def version(fd):
    return struct.unpack("<II", fcntl.ioctl(fd, VERSION, bytes(8)))


def in_child(action):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os._exit(0)
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status


def paths():
    os.chdir("/dev")
    directory = os.open("/dev", os.O_RDONLY)
    for path, kind in (("/dev/neuron0", {}), ("neuron0", {}), ("./neuron0", {}), ("../dev//neuron0", {}), ("neuron0", {"dir_fd": directory})):
        fd = os.open(path, os.O_RDWR, **kind)
        assert version(fd) == (11, 10)
        assert stat.S_ISCHR(os.stat(path, **kind).st_mode) and os.minor(os.stat(path, **kind).st_rdev) == 0
        os.close(fd)
    assert os.access("/dev/neuron1", os.R_OK | os.W_OK) and not os.access("/dev/neuron1", os.X_OK)
    assert errno_of(os.open, "/dev/neuron2", os.O_RDWR) == errno.ENOENT and not os.path.exists("/dev/neuron63")
    assert errno_of(os.open, "/dev/neuron0", os.O_RDWR | os.O_DIRECTORY) == errno.ENOTDIR
    assert errno_of(os.open, "/dev/neuron0", os.O_RDWR | os.O_CREAT | os.O_EXCL) == errno.EEXIST
    assert errno_of(os.readlink, "/dev/neuron0") == errno.EINVAL
    os.close(os.open("/dev/neuron0", os.O_RDWR | os.O_CREAT | os.O_TRUNC))
    # Names that only look like the node are the kernel's.
    for other in ("/dev/neuron", "/dev/neuron00", "/dev/neuron0x", "/tmp/neuron0"):
        assert errno_of(os.open, other, os.O_RDWR) == errno.ENOENT, other


def files():
    fd = node(device=1)
    status = os.fstat(fd)
    assert stat.S_ISCHR(status.st_mode) and (os.major(status.st_rdev), os.minor(status.st_rdev)) == (246, 1)
    assert os.readlink("/proc/self/fd/%d" % fd) == os.readlink("/dev/fd/%d" % fd) == "/dev/neuron1"
    assert errno_of(os.read, fd, 8) == errno_of(os.write, fd, b"x") == errno.EINVAL
    assert not os.isatty(fd)
    again = os.open("/proc/self/fd/%d" % fd, os.O_RDWR)
    assert os.minor(os.fstat(again).st_rdev) == 1
    handle = alloc(fd)
    os.close(again)
    assert address(fd, handle) > 0, "two opens, one close: the chunk stays"
    free_access = node(os.O_WRONLY)
    assert version(free_access) == (11, 10) and errno_of(alloc, free_access) == errno.EINVAL
    read_only = node(os.O_RDONLY)
    pa = address(read_only, alloc(read_only))
    assert errno_of(lambda: mmap.mmap(read_only, 4096, offset=pa, prot=3)) == errno.EACCES


def inheritance():
    fd = node(os.O_RDWR | os.O_CLOEXEC)
    assert fcntl.fcntl(fd, fcntl.F_GETFD) == fcntl.FD_CLOEXEC
    handle = alloc(fd)

    def child():
        assert version(fd) == (11, 10)
        assert errno_of(address, fd, handle) == errno.EACCES, "a forked child is not attached"
        assert stat.S_ISCHR(os.fstat(fd).st_mode) and os.readlink("/proc/self/fd/%d" % fd) == "/dev/neuron0"
        os.close(fd)

    in_child(child)
    assert address(fd, handle) > 0, "the child's close did nothing"
    kept = node()
    os.set_inheritable(kept, True)
    script = "import os,fcntl,struct;print(struct.unpack('<II',fcntl.ioctl(%d,%d,bytes(8))), os.path.exists('/proc/self/fd/%d'))" % (kept, VERSION, fd)
    done = subprocess.run([sys.executable, "-c", script], close_fds=False, capture_output=True, text=True)
    assert done.stdout == "(11, 10) False\n", done
    # exec closes what is marked for it: that is the last close of this process, and what it allocated is gone.
    os.set_inheritable(kept, False)
    reader = "import os,sys;sys.argv=['','after_exec'];exec(open(%r).read())" % os.path.abspath(__file__)
    os.execv(sys.executable, [sys.executable, "-c", reader])


def after_exec():
    fd = node()
    assert alloc(fd) == 1, "the handle is free again"


def duplicates():
    fd = node()
    handle = alloc(fd)
    copy = os.dup(fd)
    assert address(copy, handle) > 0
    os.close(copy)
    assert errno_of(address, fd, handle) == errno.EACCES, "dup and one close detach the process"
    assert version(fd) == (11, 10)
    os.close(fd)
    fd = node()
    handle = alloc(fd)
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
    assert high >= 200 and os.minor(os.fstat(high).st_rdev) == 0
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, high)
    assert errno_of(address, fd, handle) == errno.EACCES, "dup2 onto a copy closes it"
    os.dup2(fd, 300)
    assert version(300) == (11, 10)
    os.closerange(200, 400)
    assert errno_of(version, 300) == errno.EBADF
    # Python's mmap keeps a duplicate, and closes it with the mapping.
    fd = node(device=1)
    handle = alloc(fd)
    memory = mmap.mmap(fd, 4096, offset=address(fd, handle))
    memory[:5] = b"hello"
    memory.close()
    assert errno_of(address, fd, handle) == errno.EACCES


def threads():
    fd = node()
    handles, faults = set(), []

    def work():
        try:
            for _ in range(100):
                mine = alloc(fd)
                assert mine not in handles
                handles.add(mine)
                pa = ctypes.c_uint64(0)
                fcntl.ioctl(fd, GET_PA, struct.pack("<QQ", mine, ctypes.addressof(pa)))
        except BaseException as error:
            faults.append(error)

    workers = [threading.Thread(target=work) for _ in range(6)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert not faults and len(handles) == 600, faults
    assert struct.unpack("<i", fcntl.ioctl(fd, APP_PID, bytes(4)))[0] == os.getpid(), "threads are one process"


def foreign_mapping():
    fd = node()
    pa = address(fd, alloc(fd, 16384))
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    mine = libc.mmap(None, 16384, 3, 1, fd, pa)
    ctypes.memmove(mine, b"abcd", 4)
    inside = libc.mmap(None, 16384, 1, 1, fd, pa + 4096)
    assert ctypes.string_at(inside, 4) == b"abcd", "a mapping begins with its chunk"

    def reader():
        there = libc.mmap(None, 16384, 3, 1, node(), pa)
        assert ctypes.string_at(there, 4) == b"abcd"

    in_child(reader)
    for action in (lambda: ctypes.memset(libc.mmap(None, 16384, 3, 1, node(), pa), 0, 1), lambda: ctypes.string_at(mine, 1)):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            action()
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == 11, "another's chunk is read only, and mappings are not inherited"
    assert ctypes.string_at(mine, 4) == b"abcd"


def sent():
    import socket

    left, right = socket.socketpair()
    fd = node()
    handle = alloc(fd)

    def child():
        got = socket.recv_fds(right, 1, 1)[1][0]
        assert version(got) == (11, 10) and errno_of(address, got, handle) == errno.EACCES

    sys.stdout.flush()
    os.set_inheritable(fd, False)
    pid = os.fork()
    if pid == 0:
        os.close(fd)
        child()
        os._exit(0)
    socket.send_fds(left, [b"x"], [fd])
    assert os.waitpid(pid, 0)[1] == 0
    assert address(fd, handle) > 0


def sysfs():
    base = "/sys/devices/virtual/neuron_device/neuron0"
    total = base + "/neuron_core0/stats/memory_usage/device_mem/total"
    read = lambda path: open(path).read()
    assert read("/sys/module/neuron/version") == "2.24.7.0\n" and read(base + "/core_count") == "8"
    assert os.listdir("/sys/class/neuron_device").count("neuron1") == 1
    assert os.readlink("/sys/class/neuron_device/neuron0") == "../../devices/virtual/neuron_device/neuron0"
    assert os.path.realpath("/sys/class/neuron_device/neuron0/info") == base + "/info"
    assert stat.S_ISLNK(os.lstat("/sys/class/neuron_device/neuron0").st_mode) and os.path.isdir("/sys/class/neuron_device/neuron0")
    assert not os.path.exists("/sys/class/neuron_device/neuron2") and errno_of(os.listdir, base + "/nothing") == errno.ENOENT
    fd = node()
    assert read(total) == "0\n"
    alloc(fd, 8192)
    directory = os.open(base, os.O_RDONLY)
    inner = os.open("neuron_core0/stats/memory_usage/device_mem/total", os.O_RDONLY, dir_fd=directory)
    assert read(total) == os.pread(inner, 9, 0).decode() == "8192\n"
    os.close(fd)
    assert read(total) == "0\n"
    assert sum(len(names) for _, _, names in os.walk(base)) > 400
    if os.geteuid() != 0:
        assert errno_of(lambda: open(total, "w")) == errno.EACCES
        return
    delay = base + "/info/notify_delay"
    assert read(delay) == "-1\n"
    with open(delay, "w") as file:
        file.write("0\n")
    assert read(delay) == read("/sys/class/neuron_device/neuron1/info/notify_delay") == "0\n"
    assert errno_of(lambda: open(base + "/core_count", "w")) == errno.EACCES
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.write(os.open(total, os.O_WRONLY), b"0")
        os.stat("/dev/neuron0")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == 6, "zeroing a counter is refused loudly"


def locks():
    enter_read, enter_write, downgrade = 0x40084E51, 0x40084E53, 0x40084E54
    lock = struct.pack("<I32s", 0, b"one model")
    fd = node()
    fcntl.ioctl(fd, enter_write, lock)
    ready, go = os.pipe(), os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        mine = node()
        os.write(ready[1], b"x")
        # Waits for the writer, who gets on with other things meanwhile.
        os._exit(errno_of(fcntl.ioctl, mine, enter_read, lock))
    os.read(ready[0], 1)
    for _ in range(50):
        version(fd)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the reader waits"
    fcntl.ioctl(fd, downgrade, lock)
    # Long before its time is up it is told that the lock is another process's.
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == errno.ENOENT
    # A process that is killed while it waits gets nothing.
    pid = os.fork()
    if pid == 0:
        fcntl.ioctl(node(), enter_write, lock)
        os._exit(0)
    for _ in range(50):
        version(fd)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    fcntl.ioctl(fd, 0x40084E52, lock)
    # EALREADY says that the lock is held.
    assert errno_of(fcntl.ioctl, fd, enter_write, lock) in (0, errno.EALREADY)


globals()[sys.argv[1]]()
print("ok")
