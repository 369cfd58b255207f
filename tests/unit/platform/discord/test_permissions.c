/* Promises of platform/discord/cache.h: the permissions that Discord documents by example. */
#include "unit.h"
#include "base/mem.h"
#include "base/rand.h"
#include "platform/discord/cache.h"

enum { GUILD = 10, OWNER = 20, ANN = 30, ROLE_A = 41, ROLE_B = 42 };
#define VIEW PERM_VIEW_CHANNEL
#define SEND PERM_SEND_MESSAGES

static uint64_t ask(uint64_t everyone, const struct perm_role *roles, size_t n_roles,
                    const struct perm_overwrite *o, size_t n_o)
{
    return discord_permissions_of(&(struct perm_question){.guild_id = GUILD,
                                                          .owner_id = OWNER,
                                                          .user_id = ANN,
                                                          .everyone = everyone,
                                                          .roles = roles,
                                                          .n_roles = n_roles,
                                                          .overwrites = o,
                                                          .n_overwrites = n_o});
}

static void a_member_has_what_everyone_and_its_roles_have(void **state)
{
    struct perm_role roles[] = {{ROLE_A, SEND}};

    assert_int_equal(ask(VIEW, roles, 1, NULL, 0), VIEW | SEND);
}

static void the_owner_may_do_everything(void **state)
{
    struct perm_overwrite deny = {GUILD, 0, PERM_ALL, false};
    struct perm_question q = {.guild_id = GUILD,
                              .owner_id = ANN,
                              .user_id = ANN,
                              .overwrites = &deny,
                              .n_overwrites = 1,
                              .timed_out = true};

    assert_true(discord_permissions_of(&q) == PERM_ALL);
}

static void an_administrator_is_above_all_overwrites(void **state)
{
    struct perm_role roles[] = {{ROLE_A, PERM_ADMINISTRATOR}};
    struct perm_overwrite deny[] = {{GUILD, 0, VIEW, false}, {ANN, 0, VIEW, true}};

    assert_true(ask(0, roles, 1, deny, 2) == PERM_ALL);
}

static void an_overwrite_for_everyone_takes_away_and_a_role_gives_back(void **state)
{
    struct perm_role roles[] = {{ROLE_A, 0}};
    struct perm_overwrite o[] = {{GUILD, 0, VIEW, false}, {ROLE_A, VIEW, 0, false}};

    assert_int_equal(ask(VIEW | SEND, roles, 1, o, 2), VIEW | SEND);
    assert_int_equal(ask(VIEW | SEND, NULL, 0, o, 2), 0);
}

static void of_two_roles_the_one_that_allows_wins_whatever_their_order(void **state)
{
    struct perm_role roles[] = {{ROLE_A, 0}, {ROLE_B, 0}};
    struct perm_overwrite o[] = {{ROLE_B, VIEW, 0, false}, {ROLE_A, 0, VIEW, false}};

    assert_int_equal(ask(VIEW, roles, 2, o, 2), VIEW);
}

static void the_member_itself_has_the_last_word(void **state)
{
    struct perm_role roles[] = {{ROLE_A, 0}};
    struct perm_overwrite deny[] = {{ROLE_A, VIEW, 0, false}, {ANN, 0, VIEW, true}};
    struct perm_overwrite allow[] = {{ROLE_A, 0, VIEW, false}, {ANN, VIEW, 0, true}};

    assert_int_equal(ask(VIEW, roles, 1, deny, 2), 0);
    assert_int_equal(ask(0, roles, 1, allow, 2), VIEW);
}

static void a_role_and_a_member_with_one_number_are_not_confused(void **state)
{
    struct perm_role roles[] = {{ROLE_A, 0}};
    struct perm_overwrite o[] = {{ROLE_A, 0, VIEW, true}, {ANN, 0, VIEW, false}};

    assert_int_equal(ask(VIEW, roles, 1, o, 2), VIEW);
}

static void who_cannot_see_a_channel_can_do_nothing_there(void **state)
{
    assert_int_equal(ask(SEND, NULL, 0, NULL, 0), 0);
}

static void a_timed_out_member_may_only_look(void **state)
{
    struct perm_question q = {.guild_id = GUILD,
                              .user_id = ANN,
                              .everyone = VIEW | SEND | PERM_READ_MESSAGE_HISTORY,
                              .timed_out = true};

    assert_int_equal(discord_permissions_of(&q), VIEW | PERM_READ_MESSAGE_HISTORY);
}

/* The eight steps as a list, each over all overwrites anew. */
static uint64_t naive(const struct perm_question *q)
{
    uint64_t may = q->everyone;

    for (size_t i = 0; i < q->n_roles; i++)
        may |= q->roles[i].permissions;
    if (q->owner_id == q->user_id || (may & PERM_ADMINISTRATOR) != 0)
        return PERM_ALL;
    for (int step = 0; step < 6; step++)
        for (size_t i = 0; i < q->n_overwrites; i++) {
            const struct perm_overwrite *o = &q->overwrites[i];
            bool mine = o->is_member && o->id == q->user_id, role = false;
            for (size_t r = 0; r < q->n_roles; r++)
                role |= !o->is_member && o->id == q->roles[r].id && o->id != q->guild_id;
            bool everyone = !o->is_member && o->id == q->guild_id;
            if (!(step < 2 ? everyone : step < 4 ? role : mine))
                continue;
            may = step % 2 == 0 ? may & ~o->deny : may | o->allow;
        }
    return may & VIEW ? may : 0;
}

static void it_agrees_with_the_steps_done_one_by_one(void **state)
{
    struct rand r = rand_seeded(5);

    for (int run = 0; run < 20000; run++) {
        struct perm_role roles[4];
        struct perm_overwrite o[6];
        struct perm_question q = {.guild_id = GUILD,
                                  .owner_id = rand_below(&r, 8) == 0 ? ANN : OWNER,
                                  .user_id = ANN,
                                  .everyone = rand_u64(&r) & (VIEW | SEND | 1),
                                  .roles = roles,
                                  .n_roles = rand_below(&r, 5),
                                  .overwrites = o,
                                  .n_overwrites = rand_below(&r, 7)};
        for (size_t i = 0; i < ARRAY_LEN(roles); i++)
            roles[i] = (struct perm_role){40 + i, rand_u64(&r) & (VIEW | SEND | 1)};
        if (rand_below(&r, 10) == 0)
            roles[0].permissions |= PERM_ADMINISTRATOR;
        for (size_t i = 0; i < ARRAY_LEN(o); i++) {
            static const uint64_t ids[] = {GUILD, ANN, OWNER, 40, 41, 42, 43};
            o[i] = (struct perm_overwrite){ids[rand_below(&r, 7)], rand_u64(&r) & 0xfff,
                                           rand_u64(&r) & 0xfff, rand_below(&r, 2) == 0};
        }
        assert_true(discord_permissions_of(&q) == naive(&q));
    }
}

UNIT(platform_discord_test_permissions)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_has_what_everyone_and_its_roles_have),
        cmocka_unit_test(the_owner_may_do_everything),
        cmocka_unit_test(an_administrator_is_above_all_overwrites),
        cmocka_unit_test(an_overwrite_for_everyone_takes_away_and_a_role_gives_back),
        cmocka_unit_test(of_two_roles_the_one_that_allows_wins_whatever_their_order),
        cmocka_unit_test(the_member_itself_has_the_last_word),
        cmocka_unit_test(a_role_and_a_member_with_one_number_are_not_confused),
        cmocka_unit_test(who_cannot_see_a_channel_can_do_nothing_there),
        cmocka_unit_test(a_timed_out_member_may_only_look),
        cmocka_unit_test(it_agrees_with_the_steps_done_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
