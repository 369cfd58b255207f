/* platforms.c - one Discord message event on its way in: parse, event, frame bytes.
 *
 *      platforms FILE SECONDS [--show]
 *
 * What the loop does for every message, without the sockets on both sides; platforms.js does the
 * same work with what Node has.  --show prints the frame once, so that the two can be compared. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "core/event.h"
#include "platform/discord/cache.h"
#include "platform/discord/normalize.h"

static const char guild[] =
    "{\"id\":\"7700000000000000077\",\"name\":\"Hotel\",\"owner_id\":\"1\",\"roles\":[{\"id\":"
    "\"7700000000000000077\",\"permissions\":\"1024\"}],\"channels\":[{\"id\":"
    "\"1100000000000000100\",\"type\":0,\"name\":\"general\",\"topic\":\"all things\"}]}";

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t read_file(const char *path, char *to, size_t cap)
{
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(to, 1, cap, f) : 0;

    if (f != NULL)
        fclose(f);
    return n;
}

static bool one(struct json_parser *p, struct dcache *cache, struct str text,
                struct discord_normalize_out *out, struct buf *frame, uint64_t id)
{
    struct json doc;

    if (!json_parse(p, text, &doc))
        return false;
    struct discord_normalize_in in = {.message = json_get(doc, "d"),
                                      .cache = cache,
                                      .bot = STR("app1"),
                                      .bot_user = STR("9000000000000000009")};
    if (discord_normalize(&in, out) != DISCORD_EVENT)
        return false;
    dcache_note_member(cache, out->guild_id, out->user_id, out->nick, out->roles);
    buf_reset(frame);
    event_write_frame(frame, &out->ev, &(struct hash128){.lo = id});
    return true;
}

int main(int argc, char **argv)
{
    static char text[65536];
    struct json_parser *p = json_parser_new();
    struct dcache *cache = dcache_new(NULL);
    struct discord_normalize_out out = {0};
    struct buf frame = BUF_INIT;
    struct json doc;
    size_t n = argc > 2 ? read_file(argv[1], text, sizeof text) : 0;
    uint64_t events = 0;

    if (n == 0 || !json_parse(p, str_of(guild), &doc)) {
        fprintf(stderr, "usage: platforms FILE SECONDS [--show]\n");
        return 2;
    }
    dcache_put_guild(cache, doc);
    double begin = now_s(), end = begin + atof(argv[2]), at = begin;
    while (at < end) {
        for (int i = 0; i < 1000; i++)
            if (!one(p, cache, str_make(text, n), &out, &frame, ++events)) {
                fprintf(stderr, "platforms: the message is no event\n");
                return 1;
            }
        at = now_s();
    }
    if (argc > 3)
        fwrite(frame.p, 1, frame.n, stdout);
    else
        printf(
            "{\"events\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"bytes_in\":%zu,\"bytes_out\":%zu}\n",
            (unsigned long long)events, at - begin, (double)events / (at - begin), n, frame.n);
    discord_normalize_done(&out);
    buf_done(&frame);
    dcache_free(cache);
    json_parser_free(p);
    return 0;
}
