/* One activity from a hostile Teams, and the claims of one hostile token: the first must become an
 * event that can be written, or be refused; the second proves nothing for another bot. */
#include <stdlib.h>
#include "core/event.h"
#include "platform/teams/normalize.h"
#include "platform/teams/proof.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OTHER "99991111-aaaa-2222-bbbb-3333cccc4444" /* no seed and no word names it */

static struct json_parser *parser, *again;
static const struct teams_in in = {.bot = STR("b"), .reactions = true};
static const struct teams_self self = {.app = STR(OTHER),
                                       .tenant = STR("aaaabbbb-0000-cccc-1111-dddd2222eeee")};

static void check_event(const struct teams_out *out, bool press)
{
    const struct event *ev = &out->ev;
    struct str chat, thread;
    struct buf bytes = BUF_INIT;
    struct json doc;

    event_write(&bytes, ev);
    if (!json_parse(again, buf_str(&bytes), &doc) || ev->user_id.n == 0 || ev->route_key.n == 0 ||
        !teams_split_chat(ev->chat_id, &chat, &thread) || thread.n > 0 ||
        (ev->thread_id.n > 0 && !teams_is_id(ev->thread_id)) || out->at.service_url.n == 0 ||
        out->at.service_url.n > TEAMS_URL_MAX || ev->n_media > EVENT_MAX_MEDIA)
        abort();
    if (!press && (ev->event_id.n == 0 || ev->message_id.n == 0))
        abort();
    buf_done(&bytes);
}

static void check_text(struct str text)
{
    struct arena arena = ARENA_INIT;
    bool mentioned = false;

    struct str said = teams_text_in(&arena, text, (struct json){0}, STR("28:x"), &mentioned);
    if (mentioned || said.n > text.n + text.n / 4)
        abort();
    if (teams_is_own_url(text, STR_NULL) && !str_starts(text, STR("https://")))
        abort();
    arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str bytes = str_make(data, size);
    struct arena arena = ARENA_INIT;
    struct teams_out out = {0};
    struct json doc;

    if (parser == NULL) {
        parser = json_parser_new();
        again = json_parser_new();
    }
    if (json_parse(parser, bytes, &doc)) {
        enum teams_verdict v = teams_normalize(doc, &in, &arena, &out);
        if (v == TEAMS_EVENT || v == TEAMS_PRESS)
            check_event(&out, v == TEAMS_PRESS);
        if (teams_claims_wrong(doc, teams_issuer_of(doc, &self), &self,
                               STR("https://smba.trafficmanager.net/amer/")) == NULL &&
            !str_contains(bytes, STR("9999")))
            abort();
    }
    check_text(bytes);
    teams_out_done(&out);
    arena_done(&arena);
    return 0;
}
