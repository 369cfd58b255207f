/* Promises of net/ws_codec.h. */
#include "net/net_test.h"

#include "net/ws_codec.h"

enum { NO_LIMIT = 1 << 30 };

/* What a decoder said, as text: pieces of a message are joined, its end is marked. */
static void describe(const struct ws_decoded *it, struct buf *out)
{
    switch (it->item) {
    case WS_ITEM_DATA:
        buf_add_str(out, it->bytes);
        if (it->end)
            buf_add_z(out, it->text ? "<text>" : "<binary>");
        break;
    case WS_ITEM_PING:
        buf_printf(out, "<ping %.*s>", STR_FMT(it->bytes));
        break;
    case WS_ITEM_PONG:
        buf_printf(out, "<pong %.*s>", STR_FMT(it->bytes));
        break;
    case WS_ITEM_CLOSE:
        buf_printf(out, "<close %d %.*s>", it->code, STR_FMT(it->bytes));
        break;
    case WS_ITEM_BAD:
        buf_printf(out, "<bad %d>", it->code);
        break;
    case WS_ITEM_MORE:
        break;
    }
}

static void feed(struct ws_decoder *d, const char *bytes, size_t n, struct buf *out)
{
    char *copy = xmalloc(n + 1), *p = copy;
    struct ws_decoded it;

    memcpy(copy, bytes, n);
    do {
        it = ws_decode(d, &p, &n);
        describe(&it, out);
    } while (it.item != WS_ITEM_MORE);
    assert_int_equal(n, 0);
    free(copy);
}

static void add_frame(struct buf *out, enum ws_op op, bool fin, struct str payload, bool masked)
{
    static const uint8_t mask[4] = {0x11, 0xa2, 0x33, 0xf4};
    size_t at;

    ws_frame_head(out, op, fin, payload.n, masked ? mask : NULL);
    at = out->n;
    buf_add_str(out, payload);
    if (masked && payload.n > 0)
        ws_mask(out->p + at, payload.n, mask, 0);
}

/* Decode @wire whole, split in two at every byte, and byte by byte: always the same. */
static void check_every_split(const struct buf *wire, bool server, uint64_t max, const char *want)
{
    for (size_t cut = 0; cut <= wire->n; cut++) {
        struct ws_decoder d;
        struct buf said = BUF_INIT;
        ws_decoder_init(&d, server, max);
        feed(&d, wire->p, cut, &said);
        feed(&d, wire->p + cut, wire->n - cut, &said);
        assert_string_equal(buf_z(&said), want);
        ws_decoder_done(&d);
        buf_done(&said);
    }
    struct ws_decoder d;
    struct buf said = BUF_INIT;
    ws_decoder_init(&d, server, max);
    for (size_t i = 0; i < wire->n; i++)
        feed(&d, wire->p + i, 1, &said);
    assert_string_equal(buf_z(&said), want);
    ws_decoder_done(&d);
    buf_done(&said);
}

static void a_conversation_decodes_the_same_however_it_is_cut(void **state)
{
    struct buf wire = BUF_INIT;

    add_frame(&wire, WS_TEXT, true, STR("hello, world"), true);
    add_frame(&wire, WS_TEXT, false, STR("one "), true);
    add_frame(&wire, WS_PING, true, STR("are you there?"), true);
    add_frame(&wire, WS_CONT, false, STR(""), true);
    add_frame(&wire, WS_PONG, true, STR(""), true);
    add_frame(&wire, WS_CONT, true, STR("two"), true);
    add_frame(&wire, WS_BINARY, true, STR(""), true);
    add_frame(&wire, WS_CLOSE, true,
              STR("\x03\xe8"
                  "bye"),
              true);
    check_every_split(&wire, true, NO_LIMIT,
                      "hello, world<text>one <ping are you there?><pong >two<text><binary>"
                      "<close 1000 bye>");
    buf_done(&wire);
}

static void an_idle_decoder_may_be_replaced_by_a_new_one(void **state)
{
    struct buf wire = BUF_INIT, said = BUF_INIT;
    struct ws_decoder d;
    unsigned replaced = 0;

    add_frame(&wire, WS_TEXT, false, STR("one "), true);
    add_frame(&wire, WS_PING, true, STR("in between"), true);
    add_frame(&wire, WS_CONT, true, STR("two"), true);
    add_frame(&wire, WS_PING, true, STR("behind"), true);
    add_frame(&wire, WS_BINARY, true, STR(""), true);
    ws_decoder_init(&d, true, NO_LIMIT);
    for (size_t i = 0; i < wire.n; i++) {
        feed(&d, wire.p + i, 1, &said);
        if (!ws_decoder_is_idle(&d))
            continue;
        ws_decoder_done(&d);
        ws_decoder_init(&d, true, NO_LIMIT);
        replaced++;
    }
    assert_string_equal(buf_z(&said), "one <ping in between>two<text><ping behind><binary>");
    assert_int_equal(replaced, 3); /* behind each message, and behind the ping between them */
    ws_decoder_done(&d);
    buf_done(&wire);
    buf_done(&said);
}

static void a_client_reads_unmasked_frames(void **state)
{
    struct buf wire = BUF_INIT;

    add_frame(&wire, WS_TEXT, true, STR("from the server"), false);
    add_frame(&wire, WS_CLOSE, true, STR(""), false);
    check_every_split(&wire, false, NO_LIMIT, "from the server<text><close 1005 >");
    buf_done(&wire);
}

static void every_header_size_round_trips(void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 127, 65535, 65536, 70001};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (int masked = 0; masked < 2; masked++) {
            struct buf wire = BUF_INIT, said = BUF_INIT;
            char *payload = xmalloc(sizes[i] + 1);
            struct ws_decoder d;
            for (size_t k = 0; k < sizes[i]; k++)
                payload[k] = (char)('a' + k % 26);
            add_frame(&wire, WS_TEXT, true, str_make(payload, sizes[i]), masked != 0);
            assert_int_equal(wire.n - sizes[i], (sizes[i] < 126     ? 2
                                                 : sizes[i] < 65536 ? 4
                                                                    : 10) +
                                                    (masked ? 4 : 0));
            ws_decoder_init(&d, masked != 0, NO_LIMIT);
            feed(&d, wire.p, 3 < wire.n ? 3 : wire.n, &said);
            feed(&d, wire.p + (3 < wire.n ? 3 : wire.n), wire.n - (3 < wire.n ? 3 : wire.n), &said);
            assert_int_equal(said.n, sizes[i] + 6);
            assert_memory_equal(said.p, payload, sizes[i]);
            ws_decoder_done(&d);
            free(payload);
            buf_done(&wire);
            buf_done(&said);
        }
    }
}

static void violations_are_refused_with_the_right_code(void **state)
{
    static const struct {
        const char *what;
        struct str wire;
        bool server;
        const char *want;
    } table[] = {
        {"a client frame without mask", STR("\x81\x01x"), true, "<bad 1002>"},
        {"a server frame with mask", STR("\x81\x81\x01\x02\x03\x04x"), false, "<bad 1002>"},
        {"a reserved bit", STR("\xc1\x01x"), false, "<bad 1002>"},
        {"a reserved data opcode", STR("\x83\x01x"), false, "<bad 1002>"},
        {"a reserved control opcode", STR("\x8b\x00"), false, "<bad 1002>"},
        {"a fragmented ping", STR("\x09\x00"), false, "<bad 1002>"},
        {"a long ping", STR("\x89\x7e\x00\x80"), false, "<bad 1002>"},
        {"a continuation of nothing", STR("\x80\x01x"), false, "<bad 1002>"},
        {"a new message inside another", STR("\x01\x01x\x81\x01y"), false, "x<bad 1002>"},
        {"a short length in the long form", STR("\x81\x7e\x00\x05hello"), false, "<bad 1002>"},
        {"a middle length in the longest form", STR("\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff"),
         false, "<bad 1002>"},
        {"a length with the top bit", STR("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00"), false,
         "<bad 1002>"},
        {"a close of one byte", STR("\x88\x01\x03"), false, "<bad 1002>"},
        {"a close code that may not travel", STR("\x88\x02\x03\xed"), false, "<bad 1002>"},
        {"a close code below 1000", STR("\x88\x02\x03\xe7"), false, "<bad 1002>"},
        {"a close reason that is not UTF-8", STR("\x88\x03\x03\xe8\xff"), false, "<bad 1007>"},
        {"a message over the limit", STR("\x81\x0bhello world"), false, "<bad 1009>"},
        {"fragments over the limit", STR("\x01\x06hello \x80\x05world"), false, "hello <bad 1009>"},
        {"a length that would overflow the sum",
         STR("\x01\x01x\x80\x7f\x7f\xff\xff\xff\xff\xff\xff\xff"), false, "x<bad 1009>"},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct buf wire = BUF_INIT;
        print_message("  %s\n", table[i].what);
        buf_add_str(&wire, table[i].wire);
        check_every_split(&wire, table[i].server, 10, table[i].want);
        buf_done(&wire);
    }
}

static void nothing_is_said_after_a_violation(void **state)
{
    struct buf wire = BUF_INIT;

    add_frame(&wire, WS_CONT, true, STR("x"), false);
    add_frame(&wire, WS_TEXT, true, STR("fine by itself"), false);
    check_every_split(&wire, false, NO_LIMIT, "<bad 1002>");
    buf_done(&wire);
}

static void masking_is_its_own_inverse_at_any_offset(void **state)
{
    static const uint8_t mask[4] = {1, 2, 3, 4};
    char whole[64], pieces[64];

    for (size_t cut = 0; cut <= sizeof whole; cut++) {
        memset(whole, 'm', sizeof whole);
        memset(pieces, 'm', sizeof pieces);
        ws_mask(whole, sizeof whole, mask, 0);
        ws_mask(pieces, cut, mask, 0);
        ws_mask(pieces + cut, sizeof pieces - cut, mask, cut);
        assert_memory_equal(whole, pieces, sizeof whole);
    }
}

static void the_accept_key_is_the_one_of_the_rfc(void **state)
{
    char accept[29];

    ws_accept_key(STR("dGhlIHNhbXBsZSBub25jZQ=="), accept);
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

UNIT(net_test_ws_codec)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_decodes_the_same_however_it_is_cut),
        cmocka_unit_test(an_idle_decoder_may_be_replaced_by_a_new_one),
        cmocka_unit_test(a_client_reads_unmasked_frames),
        cmocka_unit_test(every_header_size_round_trips),
        cmocka_unit_test(violations_are_refused_with_the_right_code),
        cmocka_unit_test(nothing_is_said_after_a_violation),
        cmocka_unit_test(masking_is_its_own_inverse_at_any_offset),
        cmocka_unit_test(the_accept_key_is_the_one_of_the_rfc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
