/* delivery_id.c - design.  (delivery_id.h has the contract.)
 *
 * The bufferId is at a fixed place near the front of a frame, so delivery_id_in() finds it without
 * parsing.  Rows of older versions, whose id was their number, are read the same way. */
#include "core/delivery_id.h"
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/mem.h"
#include "core/event.h"

/* Equal for all events of one bot: dedup.h groups its entries by these bits. */
static uint64_t bot_bits(const struct hash_key *key, const struct event *ev)
{
    uint64_t platform = hash64(key, ev->platform), bot = hash64(key, ev->bot);

    return (platform + bot * 31) << (64 - DELIVERY_BOT_BITS);
}

/* Each part is preceded by its length, so different parts never give the same bytes.  The ids are
 * stored: changing this layout would accept every recent event a second time. */
bool delivery_id_of(const struct event *ev, const struct hash_key *key, struct str tenant,
                    struct str instance, struct hash128 *ret)
{
    const struct str parts[] = {tenant, instance, ev->platform, ev->bot, ev->event_id};
    char small[512], *at, *bytes = small;
    size_t total = 0;

    if (str_is_empty(ev->event_id))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        total += 8 + parts[i].n;
    if (total > sizeof small)
        bytes = xmalloc(total);
    at = bytes;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        for (int shift = 0; shift < 64; shift += 8)
            *at++ = (char)((uint64_t)parts[i].n >> shift);
        if (parts[i].n > 0)
            memcpy(at, parts[i].p, parts[i].n);
        at += parts[i].n;
    }
    *ret = hash128(key, str_make(bytes, total));
    ret->hi = bot_bits(key, ev) | (ret->hi >> DELIVERY_BOT_BITS);
    if (bytes != small)
        free(bytes);
    return true;
}

struct str delivery_event_id(struct buf *buf, bool ids_per_chat, struct str chat_id,
                             struct str message_id)
{
    if (!ids_per_chat)
        return message_id;
    buf_reset(buf);
    buf_add_str(buf, chat_id);
    buf_add_c(buf, ':');
    buf_add_str(buf, message_id);
    return buf_str(buf);
}

void delivery_id_format(struct hash128 id, char ret[DELIVERY_ID_CHARS])
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    unsigned __int128 v = (unsigned __int128)id.hi << 64 | id.lo;

    ret[0] = 'b';
    for (int i = DELIVERY_ID_CHARS - 1; i > 0; i--, v >>= 5)
        ret[i] = digits[(unsigned)v & 31];
}

void delivery_id_write(struct buf *out, struct hash128 id)
{
    char text[DELIVERY_ID_CHARS];

    delivery_id_format(id, text);
    buf_add_str(out, STR("\"bufferId\":\""));
    buf_add(out, text, sizeof text);
    buf_add_str(out, STR("\","));
}

struct str delivery_id_in(struct str frame)
{
    static const struct {
        const char *text;
        size_t n;
    } heads[] = {
#define HEAD(type) \
    {"{\"type\":\"" type "\",\"bufferId\":\"", sizeof "{\"type\":\"" type "\",\"bufferId\":\"" - 1}
        HEAD("inbound"),
        HEAD("passthrough_forward"),
#undef HEAD
    };

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        if (frame.n > heads[i].n && memcmp(frame.p, heads[i].text, heads[i].n) == 0) {
            struct str rest = str_skip(frame, heads[i].n), id;
            return str_split(&rest, '"', &id) ? id : STR_NULL;
        }
    return STR_NULL;
}
