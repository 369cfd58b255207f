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

/* @got is a struct str, @want a C string. */
#define assert_str(got, want) \
    do { \
        struct str got_ = (got); \
        assert_non_null(got_.p); \
        assert_int_equal(got_.n, strlen(want)); \
        assert_memory_equal(got_.p, want, got_.n); \
    } while (0)
