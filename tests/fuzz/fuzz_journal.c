/* The payload of a block of the journal, as a disk may give it back.  Reading ends, whatever the
 * bytes are; what was read matches itself; and what is erased is not read any more. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "core/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count(const char *bytes, size_t n, const struct journal_query *q)
{
    struct str rest = str_make(bytes, n);
    struct journal_record rec;
    size_t found = 0;

    while (journal_read(&rest, &rec))
        found += journal_matches(&rec, q);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > JOURNAL_BLOCK)
        return 0;
    char *bytes = xmalloc(size);
    memcpy(bytes, data, size);
    struct str rest = str_make(bytes, size);
    struct journal_record rec;
    struct journal_subject who = {0};
    struct journal_query of_user = {0};

    while (journal_read(&rest, &rec)) {
        if (rec.kind == JOURNAL_EVENT && rec.user_id.n > 0 && who.user.n == 0)
            who = (struct journal_subject){.platform = rec.platform, .user = rec.user_id};
        if (rec.kind == JOURNAL_EVENT && !journal_matches(&rec, &(struct journal_query){0}))
            abort();
    }
    if (who.user.n > 0) {
        char user[JOURNAL_TEXT], platform[JOURNAL_TEXT];
        memcpy(user, who.user.p, who.user.n);
        if (who.platform.n > 0)
            memcpy(platform, who.platform.p, who.platform.n);
        who.user.p = user;
        who.platform.p = platform;
        of_user.person = who.user;
        of_user.platform = who.platform;
        size_t n = journal_blank(bytes, size, &who, true);
        if (n == 0 || journal_blank(bytes, size, &who, false) != n ||
            journal_blank(bytes, size, &who, true) != 0)
            abort();
        if (who.platform.n > 0 && count(bytes, size, &of_user) != 0)
            abort();
    }
    who = (struct journal_subject){.tenant = STR("acme")};
    journal_blank(bytes, size, &who, false);
    if (journal_blank(bytes, size, &who, true) != 0)
        abort();
    free(bytes);
    return 0;
}
