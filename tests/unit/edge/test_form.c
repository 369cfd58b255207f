/* Promises of edge/form.h. */
#include "unit.h"
#include "edge/form.h"

static struct form f;

static int teardown(void **state)
{
    form_done(&f);
    return 0;
}

static void names_and_values_are_decoded(void **state)
{
    assert_true(form_parse(&f, STR("Body=a+b%26c%3D%C3%BC&From=%2B1555&Empty=&Bare&&x=y=z")));
    assert_int_equal(f.n, 5);
    assert_str(form_get(&f, "Body"), "a b&c=\xc3\xbc");
    assert_str(form_get(&f, "From"), "+1555");
    assert_str(form_get(&f, "Empty"), "");
    assert_str(form_get(&f, "Bare"), "");
    assert_str(form_get(&f, "x"), "y=z");
    assert_null(form_get(&f, "Other").p);
    assert_true(form_parse(&f, STR("")));
    assert_int_equal(f.n, 0);
}

static void what_cannot_be_decoded_is_refused(void **state)
{
    assert_false(form_parse(&f, STR("a=%")));
    assert_false(form_parse(&f, STR("a=%4")));
    assert_false(form_parse(&f, STR("a=%zz")));
    assert_false(form_parse(&f, STR("a=%00")));
    assert_false(form_parse(&f, STR("a=%ff")));
    assert_false(form_parse(&f, STR("%c0%80=1")));
}

static void there_is_an_end_to_parameters(void **state)
{
    struct buf many = BUF_INIT;

    for (int i = 0; i < FORM_MAX; i++)
        buf_printf(&many, "%sa%d=1", i > 0 ? "&" : "", i);
    assert_true(form_parse(&f, buf_str(&many)));
    assert_int_equal(f.n, FORM_MAX);
    buf_add_z(&many, "&one=more");
    assert_false(form_parse(&f, buf_str(&many)));
    buf_done(&many);
}

static void sorting_is_by_name_then_value_and_finds_twins(void **state)
{
    assert_true(form_parse(&f, STR("b=2&B=9&a=1&b=1")));
    form_sort(&f);
    assert_str(f.pairs[0].name, "B");
    assert_str(f.pairs[1].name, "a");
    assert_str(f.pairs[2].value, "1");
    assert_str(f.pairs[3].value, "2");
    assert_false(form_has_twins(&f));
    assert_true(form_parse(&f, STR("b=2&a=1&b=2")));
    form_sort(&f);
    assert_true(form_has_twins(&f));
}

static void what_is_written_reads_back(void **state)
{
    struct buf out = BUF_INIT;

    form_add(&out, "To", STR("whatsapp:+1555"));
    form_add(&out, "Body", STR("a b&c=\xc3\xbc%~\n"));
    assert_str(buf_str(&out), "To=whatsapp%3A%2B1555&Body=a%20b%26c%3D%C3%BC%25~%0A");
    assert_true(form_parse(&f, buf_str(&out)));
    assert_str(form_get(&f, "Body"), "a b&c=\xc3\xbc%~\n");
    buf_done(&out);
}

UNIT(edge_test_form)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_values_are_decoded),
        cmocka_unit_test(what_cannot_be_decoded_is_refused),
        cmocka_unit_test(there_is_an_end_to_parameters),
        cmocka_unit_test(sorting_is_by_name_then_value_and_finds_twins),
        cmocka_unit_test(what_is_written_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
