/* no_media.h - for programs that replace the HTTP client: there are no files, so the sender needs
 * nothing of src/media. */
#pragma once
#include "unit.h"
#include "media/media.h"
#include "media/media_fetch.h"

struct media_fetch *media_fetch(struct media *m, const struct media_source *s,
                                media_fetched_cb *done, void *ctx)
{
    fail();
    return NULL;
}
void media_fetch_cancel(struct media_fetch **f)
{
}
const struct media_file *media_find(const struct media *m, struct str id)
{
    return NULL;
}
bool media_may_read(const struct media_file *f, struct str tenant)
{
    return false;
}
void media_hold(struct media *m, const struct media_file *f, struct str tenant, struct str instance,
                uint64_t row)
{
    fail();
}
const char *media_path(struct media *m, const struct media_file *f)
{
    fail();
    return NULL;
}
void media_url(const struct media *m, struct str base, struct str id, bool sign, struct buf *out)
{
    fail();
}
struct str media_id_in(struct str url)
{
    return STR_NULL;
}
