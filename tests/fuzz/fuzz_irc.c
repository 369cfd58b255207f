/* The bytes of a hostile IRC server, in pieces: each line must become an event that can be written,
 * or be left out; nobody without an account may look like one.  And the text of a hostile agent:
 * its lines never hold a line break, are never too long, and lose nothing but white space. */
#include <stdlib.h>
#include "core/event.h"
#include "platform/irc/normalize.h"
#include "platform/irc/sasl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json_parser *again;
static const struct irc_in in = {.bot = STR("desk@net"),
                                 .network = STR("net"),
                                 .nick = STR("desk"),
                                 .chantypes = STR("#&"),
                                 .fold = IRC_RFC1459,
                                 .has_accounts = true,
                                 .has_tags = true,
                                 .reactions = true};

static void check_line(struct str line, struct arena *arena)
{
    struct buf bytes = BUF_INIT;
    struct irc_line l;
    struct irc_out out;
    struct json doc;
    struct str target;

    if (!irc_parse(line, &l))
        return;
    irc_numeric(&l);
    irc_time_ms(irc_tag(&l, STR("time"), arena));
    irc_token(irc_param(&l, 0), ',', STR("max-bytes"));
    if (irc_normalize(&l, &in, STR("n1"), arena, &out) != IRC_EVENT)
        return;
    event_write(&bytes, &out.ev);
    if (!json_parse(again, buf_str(&bytes), &doc) || out.ev.user_id.n == 0 ||
        (out.ev.user_id.p[0] == '?') == out.proven || out.ev.event_id.n == 0 ||
        !irc_target_of(out.ev.chat_id, in.network, &target))
        abort();
    buf_done(&bytes);
}

static void check_text(struct str text)
{
    struct str parts[IRC_MAX_PARTS], line;
    bool goes_on;

    if (!utf8_valid(text))
        return;
    size_t n = irc_split(text, parts);
    for (size_t i = 0; i < n; i++) {
        struct str rest = parts[i];
        while (irc_next_line(&rest, 64, &line, &goes_on)) {
            struct buf body = BUF_INIT;
            irc_body_add(&body, line);
            if (body.n > 64 || !utf8_valid(buf_str(&body)) ||
                str_until_control(buf_str(&body)) != body.n)
                abort();
            buf_done(&body);
        }
    }
}

static void check_login(struct str text)
{
    static const uint8_t nonce[SASL_NONCE_BYTES] = {7};
    struct buf answer = BUF_INIT;
    struct sasl s = {0};
    const char *why;

    sasl_start(&s, SASL_SCRAM, "desk", "pw", nonce);
    sasl_answer(&s, STR(""), &answer, &why);
    if (sasl_answer(&s, text, &answer, &why) == SASL_HASHES)
        sasl_hashed(&s, &answer); /* the hash itself takes long and reads nothing foreign */
    if (sasl_is_proven(&s))
        abort();
    sasl_done(&s);
    buf_done(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = str_make(data, size), line;
    struct irc_reader r = {0};
    struct arena arena = ARENA_INIT;

    if (again == NULL)
        again = json_parser_new();
    for (size_t at = 0; at < size; at += 700) {
        irc_reader_add(&r, str_make(all.p + at, size - at < 700 ? size - at : 700));
        while (irc_reader_next(&r, &line)) {
            if (line.n > IRC_LINE_MAX)
                abort();
            arena_reset(&arena);
            check_line(line, &arena);
        }
    }
    irc_reader_done(&r);
    arena_done(&arena);
    check_text(all);
    check_login(all);
    return 0;
}
