/* main.c - the program of one folder of unit tests.
 *
 *      PROGRAM                  list the test files
 *      PROGRAM FILE             run the tests of one file
 *      PROGRAM FILE PATTERN     run the tests of one file whose names match the pattern
 *
 * meson.build passes the files as TESTS, and runs each file in a process of its own: a test may
 * change its environment, its limits and its seccomp filter. */
#include "unit.h"

typedef int unit_fn(void);

#define T(name) unit_fn name;
TESTS
#undef T

static const struct {
    const char *name;
    unit_fn *run;
} units[] = {
#define T(name) {#name, name},
    TESTS
#undef T
};

int main(int argc, char **argv)
{
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (argc > 1 && strcmp(units[i].name, argv[1]) == 0)
            return units[i].run();
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        puts(units[i].name);
    return argc > 1 ? 2 : 0;
}
