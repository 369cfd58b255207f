/* byline.c - design.  (byline.h has the contract.)
 *
 * In bold, as the platform's own Markdown has it; what a name has of Markdown is escaped. */
#include "relay/out/byline.h"
#include "base/buf.h"
#include "relay/out/chats.h"
#include "relay/out/company.h"
#include "relay/out/guard.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/out/spoken.h"
#include "tenancy/facts.h"

static bool says_something(const struct action *a)
{
    return a->content.n > 0 && (a->op == ACTION_SEND || a->op == ACTION_EDIT ||
                                a->op == ACTION_SEND_MEDIA || a->op == ACTION_PROMPT);
}

/* Whoever speaks counts, and so does whoever was heard: is there anybody else? */
static bool has_company(const struct instance *i, const struct destination *to,
                        const struct action *a)
{
    struct relay *r = i->relay;
    struct str bot = str_of(to->outlet->bot);
    const struct known_chat *chat = chats_find_on(i, to->platform, a->chat_id);
    uint64_t place = company_place(r, to->platform, bot, a->chat_id);

    if (chat == NULL || !str_eq(chat_bot(chat), bot))
        spoken_enter(r, spoken_place(i, to->platform, bot, a->chat_id), place);
    return company_count(r, place) > 1;
}

static void add_escaped(struct buf *out, struct str name)
{
    for (size_t n = 0; n < name.n; n++) {
        if (memchr("\\`*_~[](){}#+-.!>|", name.p[n], 18) != NULL)
            buf_add_c(out, '\\');
        buf_add_c(out, name.p[n]);
    }
}

static bool fits(struct str text, const struct descriptor *d)
{
    size_t n = str_eq(str_of(d->len_unit), STR("utf16")) ? utf16_units(text) : utf8_chars(text);

    return n <= (size_t)d->max_message_length;
}

struct str byline_add(const struct instance *i, const struct destination *to,
                      const struct action *a, struct buf *room)
{
    const struct descriptor *d = to->outlet->descriptor;
    const struct gateway *g;

    if (!says_something(a) || to->outlet->answers || !has_company(i, to, a))
        return a->content;
    g = facts_newest_gateway(i->relay->env.facts, instance_tenant(i), instance_id(i));
    if (g == NULL || g->display_name == NULL)
        return a->content;
    if (str_eq(str_of(d->markdown_dialect), STR("plain"))) {
        buf_printf(room, "%s: ", g->display_name);
    } else {
        buf_add_z(room, "**");
        add_escaped(room, str_of(g->display_name));
        buf_add_z(room, ":** ");
    }
    buf_add_str(room, a->content);
    return a->op == ACTION_EDIT && !fits(buf_str(room), d) ? a->content : buf_str(room);
}
