/* A gateway that was let in and says anything: a relay with real facts and an in-memory store, a
 * socket driven by frames, one per line.  Lines that begin with a digit make time pass and mail
 * arrive.  Whatever it says, it is not somebody else. */
#include "unit/relay/rig.h"
#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void happen(struct fake *f, char what)
{
    char id[24];

    switch (what) {
    case '0':
        advance(30000);
        break;
    case '1':
        snprintf(id, sizeof id, "e%u", rig.events++);
        publish("both", id);
        break;
    case '2':
        if (f->s != NULL && f->close_code == 0)
            pong(f);
        break;
    case '3':
        if (rig.acts > 0)
            relay_result(rig.relay, rig.act_id,
                         &(struct action_result){.success = true, .message_id = STR("m")});
        break;
    default:
        turn();
    }
}

static void live(struct str rest)
{
    struct fake *f = dial("gw-a");
    struct str line;

    for (unsigned i = 0; i < 64 && str_split(&rest, '\n', &line); i++) {
        if (f->s == NULL || f->close_code != 0)
            break;
        if (line.n > 0 && line.p[0] >= '0' && line.p[0] <= '9') {
            happen(f, line.p[0]);
            continue;
        }
        session_data(f->s, line);
        session_data(f->s, STR("\n"));
        turn();
    }
    if (f->s != NULL)
        hang_up(f, 1006);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    log_setup(LOG_ERROR, false);
    setup(NULL);
    live(str_make(data, size));
    if (strcmp(look("bob").state, "live") == 0)
        abort(); /* nobody has dialled for bob */
    teardown(NULL);
    return 0;
}
