/* approval.c - design.  (approval.h has the contract.)
 *
 * skill_is_approved() reads the first status line of the body; skill_sign() writes into the top
 * header block.  If the body has another status line before that block, or outside it, skill_sign()
 * refuses: the result would not verify. */
#include "skills/approval.h"
#include <stdio.h>
#include "base/crypto.h"
#include "base/space.h"

static bool is_header_line(struct str line, struct str key)
{
    line = str_skip(line, space_run(line));
    if (!str_starts(line, STR("#")))
        return false;
    line = str_skip(line, 1);
    line = str_skip(line, space_run(line));
    if (line.n < key.n || !str_eq_ci(str_make(line.p, key.n), key))
        return false;
    line = str_skip(line, key.n);
    line = str_skip(line, space_run(line));
    return str_starts(line, STR(":"));
}

/* Cut a line off *@rest, whatever ends it of LF, CRLF and CR. */
static bool next_line(struct str *rest, struct str *ret_line)
{
    size_t n = 0;

    if (rest->p == NULL)
        return false;
    while (n < rest->n && rest->p[n] != '\n' && rest->p[n] != '\r')
        n++;
    *ret_line = str_make(rest->p, n);
    if (n == rest->n)
        *rest = STR_NULL;
    else
        *rest = str_skip(*rest, n + (str_starts(str_skip(*rest, n), STR("\r\n")) ? 2 : 1));
    return true;
}

void skill_canonical(struct str body, struct buf *out)
{
    struct str line;
    bool first = true;

    if (body.p == NULL)
        body = STR("");
    while (next_line(&body, &line)) {
        if (is_header_line(line, STR("Status")) || is_header_line(line, STR("Tags")))
            continue;
        if (!first)
            buf_add_c(out, '\n');
        first = false;
        buf_add_str(out, line);
    }
}

static bool verify(struct str body, struct str token, const struct ed25519_key *key)
{
    struct buf sig = BUF_INIT, canonical = BUF_INIT;

    skill_canonical(body, &canonical);
    bool ok = token.n > 0 && str_has_only(token, "_-") && base64url_decode(token, &sig) &&
              ed25519_verify(key, buf_str(&canonical), buf_str(&sig));
    buf_done(&sig);
    buf_done(&canonical);
    return ok;
}

bool skill_is_approved(struct str body, const struct ed25519_key *public_key, const char **ret_why)
{
    enum skill_status s = SKILL_DRAFT;
    struct str token = STR_NULL;
    const char *why = NULL;

    if (!skill_status_read(body, &s, &token) || s != SKILL_APPROVED)
        why = "its body does not say Approved";
    else if (token.p == NULL)
        why = "it carries no signature";
    else if (!str_starts(token, STR("v3:")))
        why = "its signature is not one of version 3";
    else if (!verify(body, str_skip(token, 3), public_key))
        why = "its signature does not fit: it was edited since, or signed with another key";
    if (ret_why != NULL)
        *ret_why = why;
    return why == NULL;
}

/* The status line of the top block, which ends at the first line that is blank or no comment. */
static bool block_status(struct str body, struct str *ret_line)
{
    struct str rest = body, line;

    while (str_split(&rest, '\n', &line)) {
        struct str text = space_trim(line);
        if (!str_starts(text, STR("#")))
            return false;
        struct str key = str_skip(text, 1);
        key = str_skip(key, space_run(key));
        if (str_starts(key, STR("Status")) && is_header_line(text, STR("Status"))) {
            *ret_line = line;
            return true;
        }
    }
    return false;
}

static void stamp(struct str body, struct str status, struct buf *out)
{
    struct str line;
    size_t hash, end;

    if (block_status(body, &line)) {
        buf_add(out, body.p, (size_t)(line.p - body.p));
        buf_add_str(out, status);
        buf_add_str(out, str_skip(body, (size_t)(line.p - body.p) + line.n));
    } else if (skill_header_line(body, STR("Skill"), &hash, &end)) {
        buf_add(out, body.p, end);
        buf_add_c(out, '\n');
        buf_add_str(out, status);
        buf_add_str(out, str_skip(body, end));
    } else {
        buf_add_str(out, status);
        buf_add_c(out, '\n');
        buf_add_str(out, body);
    }
}

/* Verifies that skill_is_approved() finds exactly @token, over exactly the text that was signed. */
static bool is_found(struct str body, struct str canonical, struct str token)
{
    enum skill_status s = SKILL_DRAFT;
    struct str found = STR_NULL;
    struct buf again = BUF_INIT;

    skill_canonical(body, &again);
    bool ok = skill_status_read(body, &s, &found) && s == SKILL_APPROVED && str_eq(found, token) &&
              str_eq(buf_str(&again), canonical);
    buf_done(&again);
    return ok;
}

bool skill_sign(struct str body, const struct ed25519_key *private_key, struct buf *out,
                char *ret_why)
{
    static const char line[] = "# Status: Approved ";
    uint8_t sig[ED25519_BYTES] = {0};
    struct buf canonical = BUF_INIT, status = BUF_INIT, signed_body = BUF_INIT;

    skill_canonical(body, &canonical);
    bool ok = ed25519_sign(private_key, buf_str(&canonical), sig);
    buf_printf(&status, "%sv3:", line);
    base64url_add(&status, sig, sizeof sig);
    stamp(body, buf_str(&status), &signed_body);
    if (!ok)
        snprintf(ret_why, 256, "the key cannot sign");
    else if (!is_found(buf_str(&signed_body), buf_str(&canonical),
                       str_skip(buf_str(&status), strlen(line)))) {
        snprintf(ret_why, 256,
                 "the body has another `# Status:` line before its header block, or "
                 "header lines that share a line with others: mend that first");
        ok = false;
    }
    if (ok)
        buf_add_str(out, buf_str(&signed_body));
    buf_done(&canonical);
    buf_done(&status);
    buf_done(&signed_body);
    return ok;
}
