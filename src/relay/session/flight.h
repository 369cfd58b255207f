/* flight.h - the messages on one socket that are not settled yet: the window.
 *
 * A message is settled when all its deliveries are.  Allocated with the first message, freed when
 * the socket has been quiet for a while: an idle socket pays nothing. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flight_message {
    uint64_t first, last; /* ids */
    uint32_t left;        /* deliveries not settled */
};
struct flight {
    uint16_t n, cap;
    bool solo; /* the one message is a suspect: nothing goes beside it */
    bool soft; /* something waits for the pong to ping_no */
    uint32_t ping_no;
    uint64_t ping_upto;          /* the newest id that pong settles */
    struct flight_message msg[]; /* oldest first */
};

/* Add a message; *@f is made or grown.  @n deliveries between @first and @last. */
void flight_add(struct flight **f, uint64_t first, uint64_t last, uint32_t n);
/* A delivery is settled or will not be waited for; unknown ids do nothing.  True: a message left.
 */
bool flight_forget(struct flight *f, uint64_t id);
uint64_t flight_rows(const struct flight *f);
static inline size_t flight_count(const struct flight *f)
{
    return f != NULL ? f->n : 0;
}
