/* erase.h - between erase_route.c, which takes the request, and erase_tenant.c. */
#pragma once
#include "http/front_priv.h"

/* Erases, or counts, and answers @req later.  @tenant is copied. */
void erase_tenant(struct front *f, struct http_req *req, struct str tenant, bool dry);
