// Makes the system calls that it is told over a local socket: a process in which
// recorded calls are replayed. remote_link.ts is the other end, client.py the
// same in Python.
//
// A message is eight 64-bit words: what to do and its operands. The answer is one
// word, at least 0 or -errno, and the bytes that were asked for.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CALL = 1, FORK, LOAD, STORE, ISSUE, TREE };
enum { PIECE = 65536, THREADS = 64, PATH = 4096 };

// A request in a list, and a list.
struct request { int32_t fd; uint32_t number; uint64_t argument; int64_t result; };
struct list { struct request *requests; uint64_t count, done; };

static struct sockaddr_un name;
static socklen_t name_length;
static int control;
static sigjmp_buf before;
static volatile sig_atomic_t guarded;
static char *found;
static size_t found_length, found_room;

static void on_fault(int number) {
  if (guarded) siglongjmp(before, 1);
  signal(number, SIG_DFL);
}

// Copies with loads and stores of this program; a fault is an answer.
static long copy(void *to, const void *from, size_t length) {
  long result = 0;
  if (sigsetjmp(before, 1) == 0) {
    guarded = 1;
    memcpy(to, from, length);
  } else {
    result = -EFAULT;
  }
  guarded = 0;
  return result;
}

static void answer(const void *bytes, size_t length) {
  for (const char *at = bytes; length > 0;) {
    ssize_t sent = send(control, at, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) _exit(0);
    at += sent;
    length -= sent;
  }
}

static void result(long value) { answer(&value, sizeof value); }

static void take(void *bytes, size_t length) {
  for (char *at = bytes; length > 0;) {
    ssize_t got = recv(control, at, length, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) _exit(0);
    at += got;
    length -= got;
  }
}

static void reach(void) {
  control = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (control < 0 || connect(control, (struct sockaddr *)&name, name_length) < 0) _exit(9);
}

static long fork_here(void) {
  pid_t child = fork();
  if (child != 0) return child < 0 ? -errno : child;
  close(control);
  reach();
  return 0;
}

// Issues requests until the first result that is not 0.
static void *issue(void *given) {
  struct list *list = given;
  for (list->done = 0; list->done < list->count;) {
    struct request *request = &list->requests[list->done++];
    long value = ioctl(request->fd, request->number, request->argument);
    request->result = value < 0 ? -errno : value;
    if (value != 0) break;
  }
  return NULL;
}

static long issue_all(struct list *lists, size_t count) {
  pthread_t threads[THREADS];
  if (count > THREADS) return -EINVAL;
  if (count == 1) return issue(lists), 0;
  size_t started = 0;
  while (started < count && pthread_create(&threads[started], NULL, issue, &lists[started]) == 0) started++;
  for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
  return started < count ? -EAGAIN : 0;
}

static void *room(size_t length) {
  if (found_length + length > found_room) found = realloc(found, found_room = 2 * (found_length + length));
  if (found == NULL) _exit(9);
  found_length += length;
  return found + found_length - length;
}

// Adds a file as the lengths of path and text, and both.
static void add(int directory, const char *file, const char *path) {
  char text[PATH];
  int fd = openat(directory, file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ssize_t length = read(fd, text, sizeof text);
  close(fd);
  if (length < 0) return;
  uint32_t lengths[2] = {strlen(path), length};
  memcpy(room(sizeof lengths), lengths, sizeof lengths);
  memcpy(room(lengths[0]), path, lengths[0]);
  memcpy(room(length), text, length);
}

// Adds all files below a directory; links are left alone. Takes over the descriptor.
static void walk(int fd, char *path, size_t length) {
  DIR *directory = fdopendir(fd);
  for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
    size_t more = strlen(entry->d_name);
    if (entry->d_name[0] == '.' || length + more + 2 > PATH) continue;
    memcpy(path + length, entry->d_name, more + 1);
    if (entry->d_type == DT_REG) add(fd, entry->d_name, path);
    if (entry->d_type != DT_DIR) continue;
    path[length + more] = '/';
    path[length + more + 1] = 0;
    walk(openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path, length + more + 1);
  }
  if (directory != NULL) closedir(directory);
}

static void tree(const char *directory) {
  char path[PATH] = "";
  found_length = 0;
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return result(-errno);
  walk(fd, path, 0);
  result(found_length);
  answer(found, found_length);
}

static void load(const void *from, size_t length) {
  static char bytes[PIECE];
  long value = length > PIECE ? -EINVAL : copy(bytes, from, length);
  result(value);
  if (value == 0) answer(bytes, length);
}

static long store(void *to, size_t length) {
  static char bytes[PIECE];
  if (length > PIECE) _exit(9);
  take(bytes, length);
  return copy(to, bytes, length);
}

int main(int count, char **words) {
  size_t length = count == 2 ? strlen(words[1]) : 0;
  if (length == 0 || length >= sizeof name.sun_path) return 9;
  name.sun_family = AF_UNIX;
  memcpy(name.sun_path + 1, words[1], length);
  name_length = offsetof(struct sockaddr_un, sun_path) + 1 + length;
  // What a terminal sends to its programs is not meant for this one.
  setsid();
  struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  reach();
  for (;;) {
    uint64_t m[8];
    take(m, sizeof m);
    switch (m[0]) {
      case CALL: {
        long value = syscall(m[1], m[2], m[3], m[4], m[5], m[6], m[7]);
        result(value == -1 ? -errno : value);
        break;
      }
      case FORK: {
        long value = fork_here();
        if (value != 0) result(value);
        break;
      }
      case LOAD: load((void *)m[1], m[2]); break;
      case STORE: result(store((void *)m[1], m[2])); break;
      case ISSUE: result(issue_all((struct list *)m[1], m[2])); break;
      case TREE: tree((const char *)m[1]); break;
      default: return 9;
    }
  }
}
