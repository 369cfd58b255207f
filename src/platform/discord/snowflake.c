/* snowflake.c - Discord's ids.  (snowflake.h has the contract.) */
#include "platform/discord/snowflake.h"
#include <endian.h>

/* Every message carries half a dozen of these, so the digits are not looked at one by one: eight of
 * them are checked and folded together at once. */
static bool eight_digits(const char *p, uint64_t *ret_v)
{
    uint64_t v;

    memcpy(&v, p, 8);
    v = le64toh(v) - 0x3030303030303030;
    if (((v + 0x7676767676767676) | v) & 0x8080808080808080)
        return false;
    v = v * 10 + (v >> 8);
    *ret_v = ((v & 0x000000ff000000ff) * 0x000f424000000064 +
              ((v >> 16) & 0x000000ff000000ff) * 0x0000271000000001) >>
             32;
    return true;
}

uint64_t snowflake(struct str text)
{
    uint64_t id = 0, eight;
    size_t at = 0;

    if (text.n > 19) /* an id that long would not fit into 63 bits */
        return str_to_u64(text, &id) ? id : 0;
    for (; at + 8 <= text.n; at += 8) {
        if (!eight_digits(text.p + at, &eight))
            return 0;
        id = id * 100000000 + eight;
    }
    for (; at < text.n; at++) {
        if (text.p[at] < '0' || text.p[at] > '9')
            return 0;
        id = id * 10 + (uint64_t)(text.p[at] - '0');
    }
    return id;
}

uint64_t json_snowflake(struct json object, const char *key)
{
    return snowflake(json_str(object, key));
}
