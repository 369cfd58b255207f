/* redis_address.c - bus.url taken apart. */
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/crypto.h"
#include "base/percent.h"
#include "bus/redis/redis_line.h"

enum { PORT = 6379, MAX_DATABASE = 1 << 20 };

void redis_address_done(struct redis_address *a)
{
    if (a->password != NULL)
        secret_wipe(a->password, strlen(a->password));
    free(a->password);
    free(a->user);
    free(a->host);
    free(a->unix_path);
    *a = (struct redis_address){0};
}

static bool wrong(char *ret_why, const char *what)
{
    snprintf(ret_why, 256,
             "bus.url: %s; expected redis://[user:password@]host[:port][/database], "
             "rediss://... or unix:/path",
             what);
    return false;
}

/* NULL: its escapes are broken. */
static char *unescape(struct str s)
{
    struct buf out = BUF_INIT;

    if (percent_decode(&out, s) && memchr(buf_str(&out).p, '\0', out.n) == NULL)
        return buf_take(&out);
    buf_wipe(&out);
    return NULL;
}

/* "user:password@", ":password@" */
static bool read_who(struct str who, struct redis_address *ret)
{
    struct str user, password = who;

    str_split(&password, ':', &user);
    if (password.p == NULL)
        return false;
    ret->password = unescape(password);
    if (user.n > 0)
        ret->user = unescape(user);
    return ret->password != NULL && (user.n == 0 || ret->user != NULL);
}

/* "host", "host:6379", "[::1]:6379" */
static bool read_place(struct str place, struct redis_address *ret)
{
    struct str host = place, port = STR_NULL;
    uint64_t number = PORT;

    if (str_starts(place, STR("["))) {
        ptrdiff_t end = str_find(place, ']');
        if (end < 0)
            return false;
        host = str_make(place.p + 1, (size_t)end - 1);
        port = str_skip(place, (size_t)end + 1);
        if (port.n > 0 && *port.p != ':')
            return false;
        port = str_skip(port, 1);
    } else if (str_find(place, ':') >= 0) {
        port = place;
        str_split(&port, ':', &host);
    }
    if (host.n == 0 || (port.n > 0 && (!str_to_u64(port, &number) || number - 1 >= 65535)))
        return false;
    ret->host = str_dup(host);
    ret->port = (uint16_t)number;
    return true;
}

static bool has_blank(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || s.p[i] == 0x7f)
            return true;
    return false;
}

static bool read_parts(struct str rest, struct redis_address *ret, char *ret_why)
{
    struct str place;
    uint64_t database = 0;

    str_split(&rest, '/', &place);
    if (rest.n > 0 && (!str_to_u64(rest, &database) || database > MAX_DATABASE))
        return wrong(ret_why, "the database is no number");
    ret->database = (uint32_t)database;
    const char *at = place.n > 0 ? memrchr(place.p, '@', place.n) : NULL;
    if (at != NULL && !read_who(str_make(place.p, (size_t)(at - place.p)), ret))
        return wrong(ret_why, "user and password are written user:password@");
    if (at != NULL)
        place = str_skip(place, (size_t)(at - place.p) + 1);
    return read_place(place, ret) || wrong(ret_why, "host and port cannot be understood");
}

bool redis_address_read(const char *url, struct redis_address *ret, char *ret_why)
{
    struct str s = str_of(url);
    bool ok;

    *ret = (struct redis_address){0};
    if (has_blank(s))
        return wrong(ret_why, "it has blanks");
    if (str_starts(s, STR("unix:/"))) {
        ret->unix_path = str_dup(str_skip(s, 5));
        return true;
    }
    ret->tls = str_starts(s, STR("rediss://"));
    if (!ret->tls && !str_starts(s, STR("redis://")))
        return wrong(ret_why, "it is none");
    ok = read_parts(str_skip(s, ret->tls ? 9 : 8), ret, ret_why);
    if (!ok)
        redis_address_done(ret);
    return ok;
}
