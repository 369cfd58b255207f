/* list.h - intrusive doubly linked list: a ring through a head.
 *
 * An unlinked link is zeroed or points at itself, so list_remove() twice is harmless, and
 * list_is_linked() can tell.  Only heads need list_init().  Lists own links, never the objects
 * around them. */
#pragma once
#include <stdbool.h>
#include "base/mem.h"

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}
static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}
static inline bool list_is_linked(const struct list *l)
{
    return l->next != NULL && l->next != l;
}
static inline void list_remove(struct list *l)
{
    if (l->next == NULL)
        return;
    l->prev->next = l->next;
    l->next->prev = l->prev;
    list_init(l);
}
static inline void list_add_before(struct list *at, struct list *l)
{
    l->prev = at->prev;
    l->next = at;
    at->prev->next = l;
    at->prev = l;
}
static inline void list_append(struct list *head, struct list *l)
{
    list_add_before(head, l);
}
static inline void list_move(struct list *l, struct list *head) /* to the end of head */
{
    list_remove(l);
    list_append(head, l);
}
#define list_entry(l, type, member) container_of(l, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)
/* @next is a spare cursor so that @it may be removed and freed in the body. */
#define list_each(head, it, nxt) \
    for (struct list *it = (head)->next, *nxt = it->next; it != (head); it = nxt, nxt = it->next)
