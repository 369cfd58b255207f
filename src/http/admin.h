/* admin.h - shared by the two halves of the admin socket: admin.c looks, admin_change.c changes. */
#pragma once
#include "net/http_server.h"

struct front;

/* Whose mailbox is meant: the instance must be known; fills @tenant when it is empty and only
 * one has it. False: the error has been answered. */
bool admin_find_instance(struct front *f, struct http_id id, struct str instance,
                         struct buf *tenant);
