/* Promises of media/media.h, media_write.h and media_fetch.h, on a real disk and real sockets. */
#include "unit.h"
#include <dirent.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/rand.h"
#include "media/media_fetch.h"
#include "media/media_write.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "store/store.h"
#include "store/memory/memory.h"

struct rig {
    struct loop *loop;
    struct store *store;
    struct rand rand;
    struct seal *seal;
    struct http_client *http;
    struct http_server *server;
    struct media_settings settings;
    struct media *m;
    char dir[64], key[96];
    /* the writer under test */
    struct media_write *w;
    int rooms, dones;
    int early; /* answers before the file is ready */
    enum bh_err err;
    char id[MEDIA_ID_CHARS + 1];
    char why[256];
    bool waiting;
};

static bool is_waiting(void *ctx, struct str tenant, struct str instance, uint64_t row)
{
    return ((struct rig *)ctx)->waiting && row == 7 && str_eq(instance, STR("bot"));
}

static void open_media(struct rig *r)
{
    struct media_env env = {.loop = r->loop,
                            .store = r->store,
                            .rand = &r->rand,
                            .seal = r->seal,
                            .http = r->http,
                            .settings = &r->settings,
                            .dir = r->dir,
                            .is_waiting = is_waiting,
                            .ctx = r};

    assert_int_equal(media_open(&env, &r->m, r->why), BH_OK);
}

static const struct str PACKED = STR("\x1f\x8b\x08\0 and what would be a gigabyte");

static void answer(void *ctx, struct http_req *req)
{
    struct rig *r = ctx;
    struct str path = http_path(req);
    struct http_answer a = {.status = 200, .content_type = "image/png"};
    struct buf body = BUF_INIT;

    if (str_eq(path, STR("/cat.png"))) {
        buf_add(&body, "\x89PNG\r\n\x1a\n", 8);
        for (int i = 0; i < 50000; i++)
            buf_add_z(&body, "0123456789");
    } else if (str_eq(path, STR("/page"))) {
        a.content_type = "text/html";
        buf_add_z(&body, "<!doctype html><p>please log in");
    } else if (str_eq(path, STR("/packed"))) {
        a.headers = "Content-Encoding: gzip\r\n";
        buf_add_str(&body, PACKED);
    } else if (str_eq(path, STR("/early"))) {
        a.status = str_eq(http_header(req, "X-Token"), STR("t")) && r->early-- == 0 ? 200 : 202;
        a.content_type = a.status == 202 ? "application/json" : a.content_type;
        buf_add_z(&body, a.status == 202 ? "{}" : "\x89PNG\r\n\x1a\n");
    } else if (str_eq(path, STR("/elsewhere"))) {
        a.status = 302;
        a.headers = "Location: http://169.254.169.254/latest/meta-data\r\n";
    } else {
        a.status = 404;
    }
    a.body = buf_str(&body);
    http_answer(r->server, http_req_id(req), &a);
    buf_done(&body);
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);

    strcpy(r->dir, "/tmp/test-media.XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->key, sizeof r->key, "%s.key", r->dir);
    r->loop = loop_new();
    r->store = store_memory_new(loop_clock(r->loop));
    r->rand = RAND_SYSTEM;
    r->settings = (struct media_settings){.tenant_bytes = 4 << 20,
                                          .all_bytes = 8 << 20,
                                          .ttl_ms = 3600000,
                                          .wait_ms = 20000};
    assert_int_equal(seal_open_for(r->store, STR_NULL, r->key, &r->seal, r->why), BH_OK);
    r->http = http_client_new(r->loop);
    r->server = http_server_new(r->loop, NULL, answer, r);
    assert_int_equal(http_server_listen(r->server, STR("127.0.0.1:0"), NULL, 0, r->why), BH_OK);
    open_media(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    char cmd[200];

    media_close(r->m);
    http_client_free(r->http);
    http_server_free(r->server);
    store_close(r->store);
    seal_free(r->seal);
    loop_free(r->loop);
    snprintf(cmd, sizeof cmd, "rm -rf '%s' '%s'", r->dir, r->key);
    assert_int_equal(system(cmd), 0);
    free(r);
    return 0;
}

static void on_room(void *ctx)
{
    ((struct rig *)ctx)->rooms++;
}

static void on_done(void *ctx, enum bh_err err, const struct media_file *f)
{
    struct rig *r = ctx;

    r->w = NULL;
    r->dones++;
    r->err = err;
    if (f != NULL)
        memcpy(r->id, f->id, sizeof r->id);
}

static const struct media_write_ops ops = {.room = on_room, .done = on_done};

static void turn_until(struct rig *r, const int *counter, int want)
{
    for (int i = 0; i < 5000 && *counter < want; i++)
        loop_turn(r->loop, 10);
    assert_int_equal(*counter, want);
}

static size_t files_in_folder(struct rig *r)
{
    DIR *d = opendir(r->dir);
    size_t n = 0;

    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static struct media_write *begin(struct rig *r, const char *tenant, const char *type,
                                 const char *name)
{
    struct media_spec spec = {.tenant = str_of(tenant), .type = str_of(type), .name = str_of(name)};

    r->rooms = r->dones = 0;
    r->w = media_begin(r->m, &spec, &ops, r, &r->err);
    return r->w;
}

static void keep(struct rig *r, const char *tenant, const char *text)
{
    assert_non_null(begin(r, tenant, "text/plain", "a.txt"));
    turn_until(r, &r->rooms, 1);
    media_add(r->w, str_of(text));
    media_end(r->w);
    turn_until(r, &r->dones, 1);
    assert_int_equal(r->err, BH_OK);
}

struct opened {
    int calls, fd;
};

static void on_opened(void *ctx, const struct media_file *f, int fd)
{
    struct opened *o = ctx;

    o->calls++;
    o->fd = fd;
}

static void what_is_written_is_found_and_read_again(void **state)
{
    struct rig *r = *state;
    struct opened o = {0};
    char text[16] = "";

    assert_non_null(begin(r, "acme", "Text/Plain; charset=utf-8", "../a.txt"));
    assert_int_equal(r->rooms, 0); /* never inside the call */
    turn_until(r, &r->rooms, 1);
    media_add(r->w, STR("hello "));
    turn_until(r, &r->rooms, 2);
    media_add(r->w, STR("world"));
    media_end(r->w);
    turn_until(r, &r->dones, 1);
    const struct media_file *f = media_find(r->m, str_of(r->id));
    assert_non_null(f);
    assert_string_equal(f->type, "text/plain");
    assert_string_equal(f->name, "a.txt");
    assert_int_equal(f->size, 11);
    assert_true(media_may_read(f, STR("acme")));
    assert_false(media_may_read(f, STR("other")));
    struct media_read *read = media_read(r->m, f, on_opened, &o);
    assert_non_null(read);
    turn_until(r, &o.calls, 1);
    assert_int_equal(pread(o.fd, text, sizeof text, 0), 11);
    assert_string_equal(text, "hello world");
    close(o.fd);
}

static void an_aborted_or_empty_one_leaves_nothing(void **state)
{
    struct rig *r = *state;
    struct media_stats n;

    assert_non_null(begin(r, "acme", "text/plain", ""));
    turn_until(r, &r->rooms, 1);
    media_add(r->w, STR("half"));
    media_abort(&r->w);
    for (int i = 0; i < 50; i++) {
        loop_turn(r->loop, 5);
        media_stats(r->m, &n);
    }
    assert_int_equal(n.writing, 0);
    assert_int_equal(r->dones, 0);
    assert_int_equal(files_in_folder(r), 0);
    assert_non_null(begin(r, "acme", "text/plain", ""));
    media_end(r->w);
    turn_until(r, &r->dones, 1);
    assert_int_equal(r->err, BH_MALFORMED);
    assert_int_equal(files_in_folder(r), 0);
}

static void one_tenant_cannot_take_the_room_of_another(void **state)
{
    struct rig *r = *state;
    int kept = 0;

    while (begin(r, "greedy", "text/plain", "") != NULL) {
        turn_until(r, &r->rooms, 1);
        media_add(r->w, STR("x")); /* counts as 64 KiB */
        media_end(r->w);
        turn_until(r, &r->dones, 1);
        kept++;
    }
    assert_int_equal(r->err, BH_BUSY);
    assert_int_equal(kept, (4 << 20) / (64 << 10));
    keep(r, "modest", "y");
}

static size_t files_being_written(struct rig *r)
{
    struct media_stats n;

    media_stats(r->m, &n);
    return n.writing;
}

static struct media_write *begin_as(struct rig *r, const char *tenant, const char *stranger,
                                    const char *address, uint64_t expected)
{
    struct media_spec spec = {.tenant = str_of(tenant),
                              .expected = expected,
                              .stranger = str_of(stranger),
                              .address = str_of(address)};

    r->rooms = r->dones = 0;
    r->w = media_begin(r->m, &spec, &ops, r, &r->err);
    return r->w;
}

/* Each time another one, from another address. */
static struct media_write *begin_stranger(struct rig *r, const char *tenant, uint64_t expected)
{
    static int n;
    char name[16];

    snprintf(name, sizeof name, "%d", n++);
    return begin_as(r, tenant, name, name, expected);
}

/* @n pieces of 128 KiB; how it ended. */
static enum bh_err send_as(struct rig *r, const char *tenant, const char *stranger,
                           const char *address, int n)
{
    char *piece = xcalloc(1, 128 << 10);

    if (begin_as(r, tenant, stranger, address, 0) != NULL) {
        for (int i = 1; i <= n && r->dones == 0; i++) {
            while (r->rooms < i && r->dones == 0)
                loop_turn(r->loop, 10);
            if (r->dones == 0)
                media_add(r->w, str_make(piece, 128 << 10));
        }
        if (r->dones == 0)
            media_end(r->w);
        turn_until(r, &r->dones, 1);
    }
    free(piece);
    return r->err;
}

/* Of the strangers' 1 MiB one of them has 256 KiB, and one address 512 KiB. */
static void one_stranger_or_one_address_cannot_use_up_the_share_of_all(void **state)
{
    struct rig *r = *state;

    assert_int_equal(send_as(r, "acme", "ann", "a1", 3), BH_BUSY);
    assert_int_equal(send_as(r, "acme", "ann", "a1", 2), BH_OK);
    assert_int_equal(send_as(r, "acme", "ann", "a2", 1), BH_BUSY); /* wherever she is */
    assert_int_equal(send_as(r, "acme", "made-up-1", "a1", 2), BH_OK);
    assert_int_equal(send_as(r, "acme", "made-up-2", "a1", 1), BH_BUSY);
    media_close(r->m);
    open_media(r);
    assert_int_equal(send_as(r, "acme", "ann", "a3", 1), BH_BUSY);
    assert_int_equal(send_as(r, "acme", "made-up-3", "a1", 1), BH_BUSY);
    assert_int_equal(send_as(r, "acme", "bob", "b1", 2), BH_OK);
    assert_int_equal(send_as(r, "acme", "cat", NULL, 2), BH_OK);   /* from a platform */
    assert_int_equal(send_as(r, "acme", "dan", NULL, 1), BH_BUSY); /* the share of all */
    assert_int_equal(send_as(r, "other", "dan", "a1", 2), BH_OK);
}

/* The tenant's quota is 4 MiB, so the share of strangers is 1 MiB. */
static void strangers_have_a_share_and_pay_as_bytes_come(void **state)
{
    struct rig *r = *state;
    struct media_write *open[8];
    char *half = xcalloc(1, 512 << 10);

    for (size_t i = 0; i < 8; i++) /* what they announce reserves nothing */
        assert_non_null(open[i] = begin_stranger(r, "acme", 250 << 10));
    for (size_t i = 0; i < 8; i++)
        media_abort(&open[i]);
    while (files_being_written(r) > 0)
        loop_turn(r->loop, 10);
    for (size_t i = 0; i < 4; i++) {
        assert_non_null(begin_stranger(r, "acme", 256 << 10));
        turn_until(r, &r->rooms, 1);
        media_add(r->w, str_make(half, 256 << 10));
        media_end(r->w);
        turn_until(r, &r->dones, 1);
        assert_int_equal(r->err, BH_OK);
    }
    assert_null(begin_stranger(r, "acme", 1)); /* the share is used up, ... */
    assert_int_equal(r->err, BH_BUSY);
    keep(r, "acme", "its own"); /* ... and the tenant's room is not */
    media_close(r->m);
    open_media(r);
    assert_null(begin_stranger(r, "acme", 1)); /* after a start, too */
    assert_non_null(begin_stranger(r, "other", 1));
    media_abort(&r->w);
    while (files_being_written(r) > 0)
        loop_turn(r->loop, 10);
    assert_true(media_forget(r->m, str_of(r->id)));
    assert_null(begin_stranger(r, "acme", 1)); /* its own file paid nothing into the share */
    free(half);
}

static void a_stranger_who_sends_too_much_is_cut_where_the_share_ends(void **state)
{
    struct rig *r = *state;
    char *half = xcalloc(1, 512 << 10);

    assert_non_null(begin_stranger(r, "acme", 0));
    for (int i = 1; i < 3; i++) {
        turn_until(r, &r->rooms, i);
        media_add(r->w, str_make(half, 128 << 10));
    }
    turn_until(r, &r->rooms, 3);
    media_add(r->w, STR("!"));
    turn_until(r, &r->dones, 1);
    assert_int_equal(r->err, BH_BUSY);
    assert_non_null(begin_stranger(r, "acme", 256 << 10)); /* nothing of it is charged any more */
    media_abort(&r->w);
    while (files_being_written(r) > 0)
        loop_turn(r->loop, 10);
    free(half);
}

static void larger_than_allowed_is_refused_as_it_comes(void **state)
{
    struct rig *r = *state;
    struct media_spec spec = {.tenant = STR("acme"), .max_bytes = 10, .expected = 11};

    assert_null(media_begin(r->m, &spec, &ops, r, &r->err));
    assert_int_equal(r->err, BH_MALFORMED);
    spec.expected = 0;
    r->rooms = r->dones = 0;
    r->w = media_begin(r->m, &spec, &ops, r, &r->err);
    turn_until(r, &r->rooms, 1);
    media_add(r->w, STR("0123456789"));
    turn_until(r, &r->rooms, 2);
    media_add(r->w, STR("!"));
    turn_until(r, &r->dones, 1);
    assert_int_equal(r->err, BH_MALFORMED);
    assert_int_equal(files_in_folder(r), 0);
}

static void a_picture_that_is_none_is_not_called_one(void **state)
{
    struct rig *r = *state;

    begin(r, "acme", "image/png", "x.png");
    turn_until(r, &r->rooms, 1);
    media_add(r->w, STR("<html><script>alert(1)</script>"));
    media_end(r->w);
    turn_until(r, &r->dones, 1);
    assert_string_equal(media_find(r->m, str_of(r->id))->type, "application/octet-stream");
}

static void only_what_cannot_be_known_is_believed(void **state)
{
    static const struct {
        const char *said, *told;
    } table[] = {{"image/png", "application/octet-stream"},
                 {"image/heic", "image/heic"},
                 {"audio/ogg", "audio/ogg"},
                 {"text/plain", "text/plain"}};
    struct rig *r = *state;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        begin(r, "acme", table[i].said, "x");
        turn_until(r, &r->rooms, 1);
        media_add(r->w, STR("no known beginning"));
        media_end(r->w);
        turn_until(r, &r->dones, 1);
        assert_string_equal(media_find(r->m, str_of(r->id))->type, table[i].told);
    }
}

static void a_start_keeps_what_has_a_record_and_removes_the_rest(void **state)
{
    struct rig *r = *state;
    char path[128];

    keep(r, "acme", "kept");
    snprintf(path, sizeof path, "%s/00112233445566778899aabbccddeeff.part", r->dir);
    fclose(fopen(path, "w"));
    assert_int_equal(files_in_folder(r), 2);
    media_close(r->m);
    open_media(r);
    assert_int_equal(files_in_folder(r), 1);
    assert_non_null(media_find(r->m, str_of(r->id)));
    snprintf(path, sizeof path, "%s/%s", r->dir, r->id); /* a torn file is none */
    assert_int_equal(truncate(path, 1), 0);
    media_close(r->m);
    open_media(r);
    assert_null(media_find(r->m, str_of(r->id)));
    assert_int_equal(files_in_folder(r), 0);
}

static void a_delivery_that_waits_keeps_its_file(void **state)
{
    struct rig *r = *state;
    struct media_stats n = {0};

    r->settings.ttl_ms = 400;
    r->waiting = true;
    keep(r, "acme", "x");
    media_hold(r->m, media_find(r->m, str_of(r->id)), STR("other"), STR("bot"), 7);
    assert_true(media_may_read(media_find(r->m, str_of(r->id)), STR("other")));
    for (int64_t end = clock_now_ms(loop_clock(r->loop)) + 3000;
         clock_now_ms(loop_clock(r->loop)) < end;)
        loop_turn(r->loop, 50);
    assert_non_null(media_find(r->m, str_of(r->id)));
    r->waiting = false; /* acked */
    for (int i = 0; i < 200 && n.expired == 0; i++) {
        loop_turn(r->loop, 50);
        media_stats(r->m, &n);
    }
    assert_null(media_find(r->m, str_of(r->id)));
    for (int i = 0; i < 100 && files_in_folder(r) > 0; i++)
        loop_turn(r->loop, 10);
    assert_int_equal(files_in_folder(r), 0);
}

static void a_signed_url_is_good_for_one_file_and_a_while(void **state)
{
    struct rig *r = *state;
    struct buf url = BUF_INIT;
    struct str rest, part, exp, sig;
#define ID1 "0123456789abcdef0123456789abcdef"

    media_url(r->m, STR("https://x.example"), STR(ID1), false, &url);
    assert_string_equal(buf_z(&url), "https://x.example/relay/media/" ID1);
    buf_reset(&url);
    media_url(r->m, STR(""), STR(ID1), true, &url);
    rest = buf_str(&url);
    str_split(&rest, '=', &part);
    str_split(&rest, '&', &exp);
    str_split(&rest, '=', &part);
    sig = rest;
    assert_true(media_signature_is_good(r->m, STR(ID1), exp, sig));
    assert_false(media_signature_is_good(r->m, STR("1123456789abcdef0123456789abcdef"), exp, sig));
    assert_false(media_signature_is_good(r->m, STR(ID1), STR("99999999999"), sig));
    assert_false(media_signature_is_good(r->m, STR(ID1), STR("1"), sig));
    assert_false(media_signature_is_good(r->m, STR(ID1), exp, STR("AAAAAAAAAAAAAAAAAAAAAA")));
    assert_false(media_signature_is_good(r->m, STR(ID1), STR_NULL, STR_NULL));
    buf_done(&url);
}

/* ---- from elsewhere ---- */

static void on_fetched(void *ctx, const struct media_file *f, const char *why)
{
    struct rig *r = ctx;

    r->dones++;
    r->err = f != NULL ? BH_OK : BH_REFUSED;
    snprintf(r->why, sizeof r->why, "%s", why);
    if (f != NULL)
        memcpy(r->id, f->id, sizeof r->id);
}

static void fetch(struct rig *r, const char *path, struct media_source s)
{
    char url[128];

    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", http_server_port(r->server), path);
    s.url = url;
    s.tenant = STR("acme");
    r->dones = 0;
    assert_non_null(media_fetch(r->m, &s, on_fetched, r));
    turn_until(r, &r->dones, 1);
}

static void a_file_is_fetched_to_disk(void **state)
{
    struct rig *r = *state;

    fetch(r, "/cat.png", (struct media_source){.trusted = true, .name = STR("cat.png")});
    assert_int_equal(r->err, BH_OK);
    const struct media_file *f = media_find(r->m, str_of(r->id));
    assert_string_equal(f->type, "image/png");
    assert_int_equal(f->size, 500008);
}

static void what_comes_packed_is_not_unpacked(void **state)
{
    struct rig *r = *state;

    fetch(r, "/packed", (struct media_source){.trusted = true, .name = STR("cat.png")});
    assert_int_equal(r->err, BH_OK);
    const struct media_file *f = media_find(r->m, str_of(r->id));
    assert_int_equal(f->size, PACKED.n);
    assert_string_equal(f->type, "application/octet-stream"); /* it said it is a picture */
}

static void what_is_no_file_is_told_so(void **state)
{
    struct rig *r = *state;

    fetch(r, "/cat.png", (struct media_source){0}); /* a stranger's URL at a private address */
    assert_string_equal(r->why, "its address is not a public one");
    fetch(r, "/page", (struct media_source){.trusted = true, .type = STR("image/png")});
    assert_string_equal(r->why, "it answered with a web page");
    fetch(r, "/elsewhere", (struct media_source){.trusted = true});
    assert_string_equal(r->why, "it is elsewhere by now, and redirects are not followed");
    fetch(r, "/nothing", (struct media_source){.trusted = true});
    assert_string_equal(r->why, "its address answered with status 404");
    fetch(r, "/cat.png", (struct media_source){.trusted = true, .max_bytes = 1000});
    assert_string_equal(r->why, "it is larger than allowed");
    assert_int_equal(files_in_folder(r), 0);
}

static void a_file_that_is_not_ready_is_asked_for_again(void **state)
{
    static const char *const headers[] = {"X-Kind: video", "X-Token: t", NULL};
    struct rig *r = *state;

    r->early = 2;
    fetch(r, "/early", (struct media_source){.trusted = true, .headers = headers});
    assert_int_equal(r->err, BH_OK);
    assert_int_equal(media_find(r->m, str_of(r->id))->size, 8);
    r->early = 100;
    fetch(r, "/early",
          (struct media_source){.trusted = true, .headers = headers, .timeout_ms = 1500});
    assert_string_equal(r->why, "its platform is still preparing it");
}

static void a_metadata_address_is_never_asked(void **state)
{
    struct rig *r = *state;
    struct media_source s = {.url = "http://169.254.169.254/latest", .tenant = STR("acme")};

    r->settings.allow_private = true;
    r->dones = 0;
    assert_non_null(media_fetch(r->m, &s, on_fetched, r));
    turn_until(r, &r->dones, 1);
    assert_string_equal(r->why, "its address is not a public one");
    fetch(r, "/cat.png", (struct media_source){0}); /* and others of the own network are */
    assert_int_equal(r->err, BH_OK);
}

static void a_cancelled_fetch_tells_nobody(void **state)
{
    struct rig *r = *state;
    struct media_source s = {.trusted = true, .tenant = STR("acme")};
    char url[128];

    snprintf(url, sizeof url, "http://127.0.0.1:%d/cat.png", http_server_port(r->server));
    s.url = url;
    r->dones = 0;
    for (int turns = 0; turns < 30; turns++) { /* in whatever state it is by then */
        struct media_fetch *f = media_fetch(r->m, &s, on_fetched, r);
        for (int i = 0; i < turns / 3 && r->dones == 0; i++)
            loop_turn(r->loop, 1);
        if (r->dones == 0)
            media_fetch_cancel(&f);
        r->dones = 0;
        loop_turn(r->loop, 1);
        assert_int_equal(r->dones, 0);
    }
}

UNIT(media_test_media)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_is_written_is_found_and_read_again),
        T(an_aborted_or_empty_one_leaves_nothing),
        T(one_tenant_cannot_take_the_room_of_another),
        T(one_stranger_or_one_address_cannot_use_up_the_share_of_all),
        T(strangers_have_a_share_and_pay_as_bytes_come),
        T(a_stranger_who_sends_too_much_is_cut_where_the_share_ends),
        T(larger_than_allowed_is_refused_as_it_comes),
        T(a_picture_that_is_none_is_not_called_one),
        T(only_what_cannot_be_known_is_believed),
        T(a_start_keeps_what_has_a_record_and_removes_the_rest),
        T(a_delivery_that_waits_keeps_its_file),
        T(a_signed_url_is_good_for_one_file_and_a_while),
        T(a_file_is_fetched_to_disk),
        T(what_comes_packed_is_not_unpacked),
        T(what_is_no_file_is_told_so),
        T(a_file_that_is_not_ready_is_asked_for_again),
        T(a_metadata_address_is_never_asked),
        T(a_cancelled_fetch_tells_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
