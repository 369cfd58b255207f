/* A hostile mail server and a hostile mail: the first byte chooses.
 *
 *   0  the bytes of an IMAP server     1  an Authentication-Results header
 *   2  a whole mail                    3  HTML, quotes, flowed text     4  an agent's Markdown */
#include <stdlib.h>
#include "platform/email/auth.h"
#include "platform/email/compose.h"
#include "platform/email/imap_codec.h"
#include "platform/email/mime.h"
#include "platform/email/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct auth_list *suffixes;

static void check_imap(struct str bytes)
{
    struct imap_reader r = {.max_body = 1000};
    struct imap_response one;
    enum imap_fed fed;

    while ((fed = imap_feed(&r, &bytes, &one)) == IMAP_RESPONSE)
        if (r.line.n > IMAP_MAX_LINE || r.body.n > IMAP_MAX_LINE ||
            (one.has_body && one.body_too_long))
            abort();
    if (fed == IMAP_MORE && bytes.n > 0)
        abort();
    imap_reader_done(&r);
}

static void check_auth(struct str value)
{
    BUF_LOCAL wrapped = BUF_INIT;

    (void)auth_is_of(value, STR("mx.our.test"));
    (void)auth_judge(value, STR("people.test"), suffixes);
    /* What stands in a comment proves nothing, whatever it is. */
    buf_add_z(&wrapped, "mx.our.test; dkim=none (");
    for (size_t i = 0; i < value.n; i++)
        if (value.p[i] != '(' && value.p[i] != ')' && value.p[i] != '\\')
            buf_add_c(&wrapped, value.p[i]);
    buf_add_c(&wrapped, ')');
    if (auth_judge(buf_str(&wrapped), STR("people.test"), suffixes) == NULL)
        abort();
}

static void check_shown(const char *z, bool one_line)
{
    if (z == NULL)
        return;
    if (!utf8_valid(str_of(z)))
        abort();
    for (; *z != '\0'; z++)
        if ((unsigned char)*z < 0x20 && (one_line || (*z != '\n' && *z != '\t')))
            abort();
}

static void check_mail(struct str bytes)
{
    struct mail_rules rules = {.bot = STR("desk@our.test"),
                               .authserv_id = STR("mx.our.test"),
                               .suffixes = suffixes};
    struct mail m = {0};

    mail_read(&m, bytes, &rules);
    check_shown(m.text, false);
    check_shown(m.name, true);
    check_shown(m.subject, true);
    if (m.refused == NULL && !m.is_bounce &&
        (m.from == NULL || !mail_is_address(str_of(m.from)) || m.text == NULL))
        abort();
    if (m.message_id != NULL && !mail_is_id(str_of(m.message_id)))
        abort();
    mail_done(&m);
}

static void check_text(struct str s)
{
    BUF_LOCAL html = BUF_INIT, clean = BUF_INIT, answer = BUF_INIT, flowed = BUF_INIT;

    text_from_html(&html, s);
    text_clean(&clean, buf_str(&html), false);
    if (!utf8_valid(buf_str(&clean)))
        abort();
    text_unflow(&flowed, buf_str(&clean), true);
    text_answer(&answer, buf_str(&flowed), flowed.n % 2 == 0);
    if (answer.n > flowed.n)
        abort();
}

static void check_compose(struct str s)
{
    BUF_LOCAL before = BUF_INIT, after = BUF_INIT, subject = BUF_INIT;

    compose_subject(&subject, s);
    struct letter l = {.from = STR("desk@our.test"),
                       .to = STR("alice@people.test"),
                       .subject = buf_str(&subject),
                       .message_id = STR("<0000000000000001.0000000000000002@our.test>"),
                       .text = s,
                       .file_name = s,
                       .file_type = STR("text/plain"),
                       .date_ms = 1794866400000};
    compose(&l, &before, &after);
    struct str rest = buf_str(&before), line;
    while (str_split(&rest, '\n', &line) && str_trim(line).n > 0)
        if (line.n >= 4 && str_eq_ci(str_make(line.p, 4), STR("bcc:")))
            abort(); /* the text became a header */
    if (after.n == 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const checks[])(struct str) = {check_imap, check_auth, check_mail, check_text,
                                                 check_compose};

    if (suffixes == NULL && (suffixes = auth_list_load()) == NULL)
        abort(); /* it loads GMime, too */
    if (size > 0)
        checks[data[0] % 5](str_make(data + 1, size - 1));
    return 0;
}
