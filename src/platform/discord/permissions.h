/* permissions.h - what a member may do in a channel, by Discord's documented algorithm.
 *
 * Pure: everything it looks at is in the question.  Threads are asked about with the overwrites of
 * their parent. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERM_ADMINISTRATOR (UINT64_C(1) << 3)
#define PERM_MANAGE_CHANNELS (UINT64_C(1) << 4)
#define PERM_MANAGE_GUILD (UINT64_C(1) << 5)
#define PERM_VIEW_CHANNEL (UINT64_C(1) << 10)
#define PERM_SEND_MESSAGES (UINT64_C(1) << 11)
#define PERM_READ_MESSAGE_HISTORY (UINT64_C(1) << 16)
#define PERM_MANAGE_THREADS (UINT64_C(1) << 34)
#define PERM_SEND_MESSAGES_IN_THREADS (UINT64_C(1) << 38)
#define PERM_ALL UINT64_MAX

struct perm_role {
    uint64_t id, permissions;
};

struct perm_overwrite {
    uint64_t id; /* of a role or a member */
    uint64_t allow, deny;
    bool is_member;
};

struct perm_question { /* arrays borrowed for the call */
    uint64_t guild_id; /* also the id of the @everyone role */
    uint64_t owner_id, user_id;
    uint64_t everyone;             /* permissions of the @everyone role */
    const struct perm_role *roles; /* of this member; @everyone may be among them or not */
    size_t n_roles;
    const struct perm_overwrite *overwrites; /* of the channel */
    size_t n_overwrites;
    bool timed_out;
};

/* 0 for whoever cannot see the channel: Discord ignores the rest then. */
uint64_t discord_permissions_of(const struct perm_question *q);
