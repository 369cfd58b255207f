/* zone.h - the time zone by which bellhop counts days: one per process, UTC at first. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* True for a name of the IANA time zone database that this machine has, such as "Europe/Berlin",
 * and for "UTC".  False: @ret_why (256 bytes) says what to fix. */
bool zone_exists(const char *name, char *ret_why);
/* Reads the zone; it must exist.  Called once at start, before threads and confinement. */
void zone_use(const char *name);
/* The local time, with its tm_gmtoff. */
void zone_at(int64_t wall_ms, struct tm *ret);
