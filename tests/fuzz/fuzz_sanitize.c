/* A hostile interaction: whatever stands under the name of a credential must not be in what is
 * forwarded, anywhere.  A planted token is put in as a credential, and every "@" of the input
 * becomes that token. */
#include <stdlib.h>
#include "core/session_key.h"
#include "edge/sanitize.h"
#include "platform/discord/interactions.h"

#define PLANTED STR("planted-token-0123456789")

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plant(struct str in, struct buf *out)
{
    buf_add_z(out, "{\"token\":\"planted-token-0123456789\",\"rest\":");
    for (size_t i = 0; i < in.n; i++)
        if (in.p[i] == '@')
            buf_add_str(out, PLANTED);
        else
            buf_add_c(out, in.p[i]);
    buf_add_c(out, '}');
}

static void check_interaction(struct json body)
{
    struct buf key = BUF_INIT, text = BUF_INIT;
    struct discord_interaction x;
    struct event ev;

    if (discord_interaction_read(body, &x)) {
        discord_interaction_text(&x, &text);
        discord_interaction_as_forward(&x, STR("app1"), &ev);
        session_key_of_event(&key, &ev);
        discord_interaction_as_message(&x, STR("app1"), buf_str(&text), &ev);
        session_key_of_event(&key, &ev);
        if (!str_starts(buf_str(&key), STR("agent:main:relay:")))
            abort();
    }
    buf_done(&key);
    buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct json_parser *p, *again;
    struct buf in = BUF_INIT, out = BUF_INIT;
    struct json doc;

    if (p == NULL) {
        p = json_parser_new();
        again = json_parser_new();
    }
    if (json_parse(p, str_make(data, size), &doc))
        check_interaction(doc);
    plant(str_make(data, size), &in);
    if (json_parse(p, buf_str(&in), &doc)) {
        struct jw w = jw_begin(&out);
        if (sanitize_json(&w, doc)) {
            if (str_contains(buf_str(&out), PLANTED))
                abort();
            if (!json_parse(again, buf_str(&out), &doc))
                abort();
        }
    }
    buf_done(&in);
    buf_done(&out);
    return 0;
}
