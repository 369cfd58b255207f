/* zone.c - design.  (zone.h has the contract.)
 *
 * The C library knows the rules of a zone, and has one zone per process: that of the variable TZ.
 * UTC is handled here, so that TZ stays as it is unless the operator names another zone. */
#include "base/zone.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/err.h"
#include "base/str.h"

#define ZONES "/usr/share/zoneinfo"

static bool is_local; /* zone_use() named another zone than UTC */

static bool is_utc(const char *name)
{
    return strcmp(name, "UTC") == 0;
}

bool zone_exists(const char *name, char *ret_why)
{
    char path[256];
    struct stat st;

    if (is_utc(name))
        return true;
    snprintf(path, sizeof path, "%s/%.200s", ZONES, name);
    if (name[0] == '\0' || name[0] == '/' || strlen(name) > 64 || strstr(name, "..") != NULL ||
        !str_has_only(str_of(name), "/_-+") || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return bh_why(
            ret_why,
            "expected UTC or a time zone below %s such as Europe/Berlin, found \"%.64s\". "
            "The package tzdata has them",
            ZONES, name);
    return true;
}

void zone_use(const char *name)
{
    char value[128];

    is_local = !is_utc(name);
    if (!is_local)
        return;
    snprintf(value, sizeof value, ":%.100s", name);
    setenv("TZ", value, 1);
    tzset();
}

void zone_at(int64_t wall_ms, struct tm *ret)
{
    time_t at = (time_t)(wall_ms / 1000);

    if ((is_local ? localtime_r(&at, ret) : gmtime_r(&at, ret)) == NULL)
        *ret = (struct tm){.tm_year = 70};
}
