/* unit.h - what every unit test includes first: cmocka and the headers it forgets to. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The function that runs a file's tests, named after the file's path below tests/unit: main.c
 * calls relay_test_mailbox() for relay/test_mailbox.c. */
#define UNIT(name) \
    int name(void); \
    int name(void)

/* @got is a struct str, @want a C string. */
#define assert_str(got, want) \
    do { \
        struct str got_ = (got); \
        assert_non_null(got_.p); \
        assert_int_equal(got_.n, strlen(want)); \
        assert_memory_equal(got_.p, want, got_.n); \
    } while (0)
