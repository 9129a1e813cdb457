// Carries out a script on the node with plain system calls. See README.md.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define BASE 0x200000000000ul
#define ARENA (1ul << 20)
#define NAMES 4096

static int fds[NAMES];
static struct { unsigned char *at; unsigned long length; } maps[NAMES];
static unsigned char *arena = (unsigned char *)BASE;

static void result(long value) { printf("%ld\n", value < 0 ? -(long)errno : value); }
static void zero(long value) { printf("%ld\n", value < 0 ? -(long)errno : 0); }

static void store(unsigned char *to, const char *hex) {
  for (; hex[0] && hex[1]; hex += 2) {
    unsigned byte;
    sscanf(hex, "%2x", &byte);
    *to++ = byte;
  }
}

static void show(const unsigned char *from, unsigned long length) {
  for (unsigned long i = 0; i < length; i++) printf("%02x", from[i]);
  putchar('\n');
}

static void status(const char *path) {
  struct stat s;
  if (stat(path, &s) < 0) printf("%d\n", -errno);
  else printf("%s %u:%u\n", S_ISCHR(s.st_mode) ? "char" : S_ISDIR(s.st_mode) ? "dir" : "file", S_ISCHR(s.st_mode) ? major(s.st_rdev) : 0, S_ISCHR(s.st_mode) ? minor(s.st_rdev) : 0);
}

int main(void) {
  static char line[1 << 20], text[1 << 20];
  unsigned long a, b, c, d, e;
  if (mmap(arena, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != arena) return 9;
  while (fgets(line, sizeof line, stdin)) {
    const char *rest = line + 1;
    switch (line[0]) {
      case 'o': sscanf(rest, "%lu %s %lu", &a, text, &b); fds[a] = open(text, b); zero(fds[a]); break;
      case 'c': sscanf(rest, "%lu", &a); result(close(fds[a])); break;
      case 'd': sscanf(rest, "%lu %lu", &a, &b); fds[b] = dup(fds[a]); zero(fds[b]); break;
      case 'w': sscanf(rest, "%lu %s", &a, text); store(arena + a, text); break;
      case 'p': sscanf(rest, "%lu %lu %lu", &a, &b, &c); for (d = 0; d < b; d++) arena[a + d] = d * 7 + (d >> 8) * 13 + c; break;
      case 'i': sscanf(rest, "%lu %lu %lu", &a, &b, &c); result(ioctl(fds[a], b, arena + c)); break;
      case 'a': sscanf(rest, "%lu %lu %lu", &a, &b, &c); result(ioctl(fds[a], b, c)); break;
      case 'r': sscanf(rest, "%lu %lu", &a, &b); show(arena + a, b); break;
      case 'h': { sscanf(rest, "%lu %lu", &a, &b); uint32_t h = 2166136261u; for (c = 0; c < b; c++) h = (h ^ arena[a + c]) * 16777619u; printf("%u\n", h); break; }
      case 'm': {
        sscanf(rest, "%lu %lu %lu %lu %lu", &a, &b, &c, &d, &e);
        void *at = mmap(NULL, c, d, MAP_SHARED, fds[b], e);
        maps[a].at = at; maps[a].length = c;
        zero(at == MAP_FAILED ? -1 : 0);
        break;
      }
      case 'l': sscanf(rest, "%lu %lu %lu", &a, &b, &c); show(maps[a].at + b, c); break;
      case 's': sscanf(rest, "%lu %lu %s", &a, &b, text); store(maps[a].at + b, text); break;
      case 'u': sscanf(rest, "%lu", &a); result(munmap(maps[a].at, maps[a].length)); break;
      case 't': sscanf(rest, "%s", text); status(text); break;
      case 'g': printf("%d\n", getpid()); break;
      case 'f': fflush(stdout); break;
    }
  }
  return 0;
}
