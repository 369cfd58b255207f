/* flight.c - design.  (flight.h has the contract.)
 *
 * Looked up from the newest message back: a redriven delivery travels alone in a message whose id
 * lies inside the range of an older one. */
#include "relay/session/flight.h"
#include <string.h>
#include "base/mem.h"

enum { FIRST_CAP = 4 };

void flight_add(struct flight **ret_f, uint64_t first, uint64_t last, uint32_t n)
{
    struct flight *f = *ret_f;

    if (f == NULL || f->n == f->cap) {
        uint16_t cap = f != NULL ? (uint16_t)(f->cap * 2) : FIRST_CAP;
        f = xrealloc(f, sizeof *f + cap * sizeof f->msg[0]);
        if (*ret_f == NULL)
            *f = (struct flight){0};
        f->cap = cap;
        *ret_f = f;
    }
    f->msg[f->n++] = (struct flight_message){.first = first, .last = last, .left = n};
}

bool flight_forget(struct flight *f, uint64_t id)
{
    size_t i = f != NULL ? f->n : 0;

    while (i > 0 && (id < f->msg[i - 1].first || id > f->msg[i - 1].last))
        i--;
    if (i == 0 || --f->msg[i - 1].left != 0)
        return false;
    f->n--;
    memmove(&f->msg[i - 1], &f->msg[i], (f->n - (i - 1)) * sizeof f->msg[0]);
    if (f->n == 0)
        f->solo = false;
    return true;
}

uint64_t flight_rows(const struct flight *f)
{
    uint64_t n = 0;

    for (size_t i = 0; f != NULL && i < f->n; i++)
        n += f->msg[i].left;
    return n;
}
