/* enter.c - notes which functions of an instrumented bellhop ran, for walk.py.
 *
 * The build "walk" compiles with -finstrument-functions, so every function calls
 * __cyg_profile_func_enter() first.  In glibc that call does nothing; walk.py preloads this library
 * in front of it.  The notes lie in the file that $BELLHOP_WALK names, mapped by both processes:
 *
 *      +--------+------------------------------+
 *      | header | slots: address, order, count |   open addressing; a slot is claimed once
 *      +--------+------------------------------+
 *
 * walk.py clears the slots and sets @on while it measures.  All fields change by atomic
 * operations, because bellhop has several threads. */
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SLOTS = 16384
}; /* walk.py knows this number too; bellhop has about half as many functions */

struct notes {
    _Atomic uint64_t on;    /* nonzero while walk.py measures */
    _Atomic uint64_t order; /* order of the function that was entered last */
    uint64_t base;          /* where the program lies in memory */
    uint64_t unused;
    struct {
        _Atomic uint64_t address;
        _Atomic uint64_t order;
        _Atomic uint64_t count;
    } slots[SLOTS];
};

static struct notes *notes; /* mapped for the life of the process; NULL: nobody measures */

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

static int on_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    *(uint64_t *)ctx = info->dlpi_addr;
    return 1; /* the first object is the program itself */
}

__attribute__((constructor)) static void open_notes(void)
{
    const char *path = getenv("BELLHOP_WALK");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return;
    notes = map;
    dl_iterate_phdr(on_object, &notes->base);
    unsetenv("BELLHOP_WALK"); /* programs that bellhop starts are not measured */
}

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    if (notes == NULL || !notes->on)
        return;
    uint64_t address = (uintptr_t)function;
    for (size_t i = (address >> 2) % SLOTS;; i = (i + 1) % SLOTS) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&notes->slots[i].address, &found, address))
            notes->slots[i].order = ++notes->order;
        else if (found != address)
            continue;
        notes->slots[i].count++;
        return;
    }
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function, (void)caller;
}
