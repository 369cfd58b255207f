/* ed25519_pair.h - a pair of keys that fit, for tests that sign: RFC 8032's first. */
#pragma once

#define ED25519_PAIR_PRIVATE \
    "-----BEGIN PRIVATE KEY-----\n" \
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n" \
    "-----END PRIVATE KEY-----\n"
#define ED25519_PAIR_PUBLIC \
    "-----BEGIN PUBLIC KEY-----\n" \
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n" \
    "-----END PUBLIC KEY-----\n"
