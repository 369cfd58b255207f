/* gate.c - decisions per second of the gate, with as many facts as a large house has.
 *
 *      gate SECONDS
 *
 * 100,000 people linked, 20,000 places granted, 5,000 instances, half of them with a principal and
 * a policy of their own.  Of the events one half are from linked people, three tenths from
 * strangers in granted places, the rest from nowhere.  Every malloc() is counted. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/mem.h"
#include "base/rand.h"
#include "core/gate.h"

enum { PEOPLE = 100000, PLACES = 20000, INSTANCES = 5000, EVENTS = 1 << 16 };

void *__libc_malloc(size_t n);
void *malloc(size_t n);
static size_t mallocs;
void *malloc(size_t n)
{
    mallocs++;
    return __libc_malloc(n);
}

static struct gate_instance instances[INSTANCES];
static struct gate_link links[PEOPLE];
static struct gate_place places[PLACES];
static struct gate_rule open_to_all = {.mode = GATE_ANY};
static struct gate_rule quiet = {.require_address = true};
static struct event events[EVENTS];

static struct str text(const char *prefix, unsigned n)
{
    char room[64];

    snprintf(room, sizeof room, "%s%u", prefix, n);
    return str_of(xstrdup(room));
}

static struct str key(struct str a, struct str b, struct str c)
{
    char room[GATE_KEY_MAX];
    struct str k = gate_key(room, a, b, c);

    return str_make(str_dup(k), k.n);
}

static void fill(struct gate_facts *f)
{
    const struct str platform = STR("discord");

    for (unsigned i = 0; i < INSTANCES; i++) {
        instances[i].tenant = text("tenant-", i / 5);
        instances[i].instance = text("agent-", i);
        list_init(&instances[i].people);
        if (i % 2 == 0)
            map_put(&instances[i].principals, STR("discord"), &open_to_all);
        if (i % 4 == 0)
            map_put(&instances[i].policies, STR("discord"), &quiet);
    }
    for (unsigned i = 0; i < PEOPLE; i++) {
        struct gate_instance *to = &instances[i % INSTANCES];
        struct str user = text("10000000000", 1000000 + i);
        links[i] = (struct gate_link){.to = to, .platform = platform, .user = user, .bots = "*"};
        map_put(&f->authors, key(platform, user, STR_NULL), &links[i]);
        list_append(&to->people, &links[i].of_instance);
    }
    for (unsigned i = 0; i < PLACES; i++) {
        places[i] = (struct gate_place){.to = &instances[i % INSTANCES]};
        map_put(&f->scopes,
                key(platform, text("20000000000", 1000000 + i / 8),
                    text("30000000000", 1000000 + i)),
                &places[i]);
    }
}

static void write_events(struct rand *r)
{
    for (unsigned i = 0; i < EVENTS; i++) {
        unsigned kind = (unsigned)rand_below(r, 10), place = (unsigned)rand_below(r, PLACES);
        struct event *ev = &events[i];
        *ev = (struct event){.platform = STR("discord"), .chat_type = STR("group")};
        ev->user_id =
            text(kind < 5 ? "10000000000%07u" : "90000000000%07u", (unsigned)rand_below(r, PEOPLE));
        ev->scope_id = ev->route_key =
            text(kind < 8 ? "20000000000%07u" : "80000000000%07u", place / 8);
        ev->chat_id = text("30000000000", 1000000 + place);
        ev->mentions_bot = rand_below(r, 4) == 0;
    }
}

static enum gate_sight sees(void *ctx, const struct event *ev, const struct gate_instance *to,
                            struct str user)
{
    return user.p[user.n - 1] & 1 ? GATE_SEEN : GATE_UNSEEN;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    struct rand r = rand_seeded(1);
    struct gate_facts f = {0};
    struct gate_world w = {.sees = sees};
    struct gate_verdict out[GATE_CANDIDATES];
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    unsigned long long n = 0, delivered = 0;

    fill(&f);
    write_events(&r);
    size_t before = mallocs;
    double begin = now_s(), took;
    do {
        for (unsigned i = 0; i < EVENTS; i++) {
            size_t found = gate_decide(&f, &w, &events[i], out);
            for (size_t k = 0; k < found; k++)
                delivered += gate_is_yes(out[k].reason);
        }
        n += EVENTS;
        took = now_s() - begin;
    } while (took < seconds);
    printf("{\"events\":%llu,\"seconds\":%.3f,\"rate\":%.0f,\"delivered\":%llu,\"mallocs\":%zu}\n",
           n, took, (double)n / took, delivered, mallocs - before);
    return 0;
}
