/* admin.h - shared by the parts of the admin socket: admin_list.c and admin.c look, admin_change.c
 * changes. */
#pragma once
#include "net/http_server.h"

struct front;
struct jw;

/* Whose mailbox is meant: the instance must be known; fills @tenant when it is empty and only
 * one has it. False: the error has been answered. */
bool admin_find_instance(struct front *f, struct http_id id, struct str instance,
                         struct buf *tenant);
void admin_time(struct jw *w, const char *key, int64_t ms); /* unix ms, or null for never */
