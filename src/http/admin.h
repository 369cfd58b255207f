/* admin.h - shared by admin_list.c, which answers questions of the command line, and
 * admin_change.c, which changes what the command line asks for. */
#pragma once
#include "net/http_server.h"

struct front;
struct jw;

/* Whose mailbox is meant: the instance must be known; fills @tenant when it is empty and only
 * one has it. False: the error has been answered. */
bool admin_find_instance(struct front *f, struct http_id id, struct str instance,
                         struct buf *tenant);
void admin_time(struct jw *w, const char *key, int64_t ms); /* unix ms, or null for never */
