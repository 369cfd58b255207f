/* permissions.c - the steps of Discord's documentation, in its order.  (permissions.h) */
#include "platform/discord/permissions.h"

static uint64_t base_permissions(const struct perm_question *q)
{
    uint64_t may = q->everyone;

    if (q->owner_id == q->user_id && q->user_id != 0)
        return PERM_ALL;
    for (size_t i = 0; i < q->n_roles; i++)
        may |= q->roles[i].permissions;
    return may & PERM_ADMINISTRATOR ? PERM_ALL : may;
}

static bool has_role(const struct perm_question *q, uint64_t id)
{
    for (size_t i = 0; i < q->n_roles; i++)
        if (q->roles[i].id == id)
            return true;
    return false;
}

/* Everyone first, then all roles together, then the member: each step takes away before it gives,
 * so between two roles of one member the one that allows wins. */
static uint64_t apply_overwrites(const struct perm_question *q, uint64_t may)
{
    struct perm_overwrite everyone = {0}, roles = {0}, member = {0};

    for (size_t i = 0; i < q->n_overwrites; i++) {
        const struct perm_overwrite *o = &q->overwrites[i];
        struct perm_overwrite *to = NULL;

        if (o->is_member)
            to = o->id == q->user_id ? &member : NULL;
        else if (o->id == q->guild_id)
            to = &everyone;
        else if (has_role(q, o->id))
            to = &roles;
        if (to == NULL)
            continue;
        to->allow |= o->allow;
        to->deny |= o->deny;
    }
    may = (may & ~everyone.deny) | everyone.allow;
    may = (may & ~roles.deny) | roles.allow;
    return (may & ~member.deny) | member.allow;
}

uint64_t discord_permissions_of(const struct perm_question *q)
{
    uint64_t may = base_permissions(q);

    if (may == PERM_ALL)
        return may;
    may = apply_overwrites(q, may);
    if (q->timed_out)
        may &= PERM_VIEW_CHANNEL | PERM_READ_MESSAGE_HISTORY;
    /* Whoever cannot see a channel can do nothing in it. */
    return may & PERM_VIEW_CHANNEL ? may : 0;
}
