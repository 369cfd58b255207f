/* A skill's body: header reader, status rewrite and forced draft match the naive reader,
 * projections and signatures take anything, and a signature that was not made is never accepted. */
#include <stdlib.h>
#include "ed25519_pair.h"
#include "unit/skills/naive.h"
#include "base/crypto.h"
#include "skills/approval.h"
#include "skills/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NAIVE_MAX 400 /* the naive reader is slow on purpose */

static void same(struct buf *got, struct buf *want)
{
    if (!str_eq(buf_str(got), buf_str(want)))
        abort();
    buf_reset(got);
    buf_reset(want);
}

static void compare(struct str body)
{
    enum skill_status a = SKILL_DRAFT, b = SKILL_DRAFT;
    struct buf got = BUF_INIT, want = BUF_INIT;

    if (skill_status_read(body, &a, NULL) != naive_status(body, &b) || a != b)
        abort();
    for (int s = 0; s < N_SKILL_STATUSES; s++) {
        skill_status_rewrite(body, (enum skill_status)s, &got);
        naive_rewrite(body, (enum skill_status)s, &want);
        if (skill_status_of(buf_str(&got)) != (enum skill_status)s)
            abort();
        same(&got, &want);
    }
    skill_force_draft(body, &got);
    naive_force_draft(body, &want);
    same(&got, &want);
    buf_done(&got);
    buf_done(&want);
}

static struct ed25519_key *sign_key, *check_key;

static void keys_make(void)
{
    sign_key = ed25519_private(STR(ED25519_PAIR_PRIVATE));
    check_key = ed25519_public(STR(ED25519_PAIR_PUBLIC));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str body = str_make(data, size);
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);
    char why[256];

    if (!utf8_valid(body))
        return 0;
    if (sign_key == NULL)
        keys_make();
    if (size <= NAIVE_MAX)
        compare(body);
    jw_obj(&w);
    skill_project(body, &w);
    jw_end_obj(&w);
    if (skill_is_approved(body, check_key, NULL))
        abort(); /* nobody guesses a signature */
    buf_reset(&out);
    if (skill_sign(body, sign_key, &out, why) && !skill_is_approved(buf_str(&out), check_key, NULL))
        abort();
    buf_done(&out);
    return 0;
}
