// Forks children that use the node as fast as they can and kills each at a random moment; after each one nothing
// of it may be left. Arguments: rounds, seed. Prints "N rounds" at the end, or what was left.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct alloc { uint64_t size, align; uint32_t host, channel, region, core, type, pad; uint64_t *handle; };
struct two { uint64_t handle; uint64_t *pa; };
struct copy { uint64_t handle; void *buffer; uint64_t size, offset; uint32_t to, pad; };
struct dump { uint32_t hbm, room, count, pad; void *data; };
struct apps { uint16_t flags, pad; uint32_t capacity, size, pad2; unsigned char data[16 * 152]; };

static void work(unsigned seed) {
  static char buffer[100000];
  for (int i = 0;; i++) {
    int fd = open(i % 2 ? "/dev/neuron1" : "/dev/neuron0", O_RDWR | O_CLOEXEC);
    if (fd < 0) _exit(3);
    for (int n = rand_r(&seed) % 8; n >= 0; n--) {
      uint64_t handle = 0, pa = 0, size = 4096 * (1 + rand_r(&seed) % 300);
      struct alloc a = {size, 0, rand_r(&seed) % 4 == 0, rand_r(&seed) % 4, 0, rand_r(&seed) % 8, 9, 0, &handle};
      if (ioctl(fd, 0x80384e66, &a) != 0) continue;
      struct two g = {handle, &pa};
      if (ioctl(fd, 0x80084e19, &g) != 0) _exit(4);
      struct copy c = {handle, buffer, size < sizeof buffer ? size : sizeof buffer, 0, 1, 0};
      if (ioctl(fd, 0xc0284e18, &c) != 0) _exit(5);
      volatile char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, pa);
      if (at == MAP_FAILED) _exit(6);
      at[size - 1] = n;
      if (rand_r(&seed) % 3 == 0) ioctl(fd, 0x80084e16, &handle);
    }
    if (rand_r(&seed) % 4 == 0) dup(fd);
    if (rand_r(&seed) % 3 == 0) close(fd);
    if (rand_r(&seed) % 16 == 0 && fork() == 0) {
      uint32_t version[2];
      for (int j = 0; j < 3; j++) ioctl(fd, 0x40084e5d, version);
      _exit(0);
    }
  }
}

/** Bytes in use by the counters of all cores of both devices. */
static unsigned long long in_use(void) {
  unsigned long long sum = 0, value;
  for (int i = 0; i < 32; i++) {
    char path[200];
    sprintf(path, "/sys/class/neuron_device/neuron%d/neuron_core%d/stats/memory_usage/%s_mem/total", i & 1, i >> 2, i & 2 ? "host" : "device");
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%llu", &value) != 1) return -1;
    fclose(file);
    sum += value;
  }
  return sum;
}

static int left(int round) {
  static char data[24 * 4096];
  int bad = 0;
  for (int device = 0; device < 2; device++) {
    int fd = open(device ? "/dev/neuron1" : "/dev/neuron0", O_RDONLY);
    if (fd < 0) return printf("round %d: open: %s\n", round, strerror(errno)), 1;
    for (uint32_t hbm = 0; hbm < 4; hbm++) {
      struct dump d = {hbm, 4096, 0, 0, data};
      if (ioctl(fd, 0x80084e74, &d) != 0 || d.count != 1) bad = printf("round %d: HBM %u has %u chunks\n", round, hbm, d.count);
    }
    struct apps apps = {.flags = 2, .capacity = 16};
    if (ioctl(fd, 0x80084e07, &apps) != 0 || apps.size != 1) bad = printf("round %d: %u processes\n", round, apps.size);
    close(fd);
  }
  return bad;
}

int main(int count, char **words) {
  unsigned long long idle = in_use();
  int rounds = count > 1 ? atoi(words[1]) : 10;
  unsigned seed = count > 2 ? strtoul(words[2], NULL, 10) : 1;
  for (int i = 0; i < rounds; i++) {
    unsigned mine = rand_r(&seed);
    pid_t child = fork();
    if (child == 0) work(mine);
    struct timespec pause = {0, rand_r(&seed) % 4000000};
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) return printf("round %d: the child ended by itself with %d\n", i, WEXITSTATUS(status)), 1;
    if (left(i)) return 1;
    if (in_use() != idle) return printf("round %d: the counters show %llu bytes instead of %llu\n", i, in_use(), idle), 1;
  }
  printf("%d rounds\n", rounds);
  return 0;
}
