// Follows an allocator's list through memory with the runtime's structs, written down here once more and independently.
#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t device_id, device_tpb_idx;
    void *vcore;
    uint64_t pad;
} physical_core_t;

typedef struct {
    void *device;
    uint64_t driver_handle, pa, mmap_offset, size;
    uint32_t align;
    void *mmap_va;
    uint32_t host_memory, nc_id;
} ndl_mem_t;

typedef struct {
    ndl_mem_t *mem_handle;
    void *mmap_va;
    pthread_mutex_t lock;
} ndl_copy_buf_t;

typedef struct dmem {
    const physical_core_t *pcore;
    ndl_mem_t *mem_handle;
    size_t size;
    uint64_t pa;
    void *va;
    size_t align_offset, allocated_size;
    int mem_type, mem_usage_type;
    uint32_t tdram_channel;
    _Alignas(64) uint64_t ref_count;
    char *hint;
    ndl_copy_buf_t *cpy_buf;
    struct dmem *next, *prev;
    struct dmem_allocator *allocator;
} dmem_t;

typedef struct dmem_allocator {
    int type;
    const physical_core_t *pcore;
    pthread_mutex_t lock;
    dmem_t dummy_head, dummy_tail;
    size_t largest_oversized_scratchpad_var;
} dmem_allocator_t;

_Static_assert(sizeof(dmem_t) == 192, "dmem_t");
_Static_assert(offsetof(dmem_t, ref_count) == 128 && offsetof(dmem_t, allocator) == 168, "dmem_t");
_Static_assert(sizeof(dmem_allocator_t) == 512, "dmem_allocator_t");
_Static_assert(offsetof(dmem_allocator_t, dummy_tail) == 256, "dmem_allocator_t");
_Static_assert(sizeof(ndl_mem_t) == 64 && sizeof(ndl_copy_buf_t) == 56 && sizeof(physical_core_t) == 24, "driver records");

typedef struct {
    uint64_t node, size, pa, handle, references, core, hint_length, allocated;
} walked_t;

static uint64_t length(const char *text) {
    uint64_t n = 0;
    if (text) while (text[n]) n++;
    return n;
}

// Returns the number of nodes, or a negative number for what is wrong with the list.
int64_t walk(dmem_allocator_t *allocator, walked_t *out, int64_t limit, int backward) {
    int64_t count = 0;
    if (pthread_mutex_trylock(&allocator->lock) != 0) return -1;
    dmem_t *end = backward ? &allocator->dummy_head : &allocator->dummy_tail;
    for (dmem_t *at = backward ? allocator->dummy_tail.prev : allocator->dummy_head.next; at != end; at = backward ? at->prev : at->next) {
        if (!at || count == limit) return -2;
        if (at->allocator != allocator || at->pcore != allocator->pcore) return -3;
        if (at->next->prev != at || at->prev->next != at) return -4;
        if (at->mem_handle->pa != at->pa || at->mem_handle->nc_id != at->pcore->device_tpb_idx) return -5;
        if (at->cpy_buf->mmap_va == 0 || at->cpy_buf->mem_handle->host_memory != 1) return -6;
        out[count++] = (walked_t){ (uint64_t)at, at->size, at->pa, at->mem_handle->driver_handle, at->ref_count, at->pcore->device_tpb_idx, length(at->hint), at->allocated_size };
    }
    pthread_mutex_unlock(&allocator->lock);
    return count;
}
