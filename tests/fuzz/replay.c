/* replay.c - every seed of one fuzz target once, without a fuzzer: what ./dev test does with
 * tests/fuzz/seeds/<target>/.
 *
 *      seeds discord tests/fuzz/seeds/discord
 *
 * The targets are compiled under their own names (see meson.build), so one program holds them all.
 * A seed that crashes ends the program with the sanitizer's report after its file name. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int target_fn(const uint8_t *data, size_t size);

#define T(name) target_fn fuzz_##name;
TARGETS
#undef T

static const struct {
    const char *name;
    target_fn *run;
} targets[] = {
#define T(name) {#name, fuzz_##name},
    TARGETS
#undef T
};

static target_fn *find_target(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (strcmp(targets[i].name, name) == 0)
            return targets[i].run;
    return NULL;
}

/* The bytes of a file in a block of exactly their size, so that reading past the end is seen. */
static uint8_t *read_file(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "re");
    uint8_t *data;
    long n;

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (n = ftell(f)) < 0) {
        perror(path);
        exit(2);
    }
    rewind(f);
    data = malloc((size_t)n + (n == 0));
    if (data == NULL || fread(data, 1, (size_t)n, f) != (size_t)n) {
        perror(path);
        exit(2);
    }
    fclose(f);
    *ret_n = (size_t)n;
    return data;
}

static void replay(target_fn *run, const char *path)
{
    size_t n;
    uint8_t *data = read_file(path, &n);

    fprintf(stderr, "%s\n", path);
    run(data, n);
    free(data);
}

int main(int argc, char **argv)
{
    target_fn *run = argc == 3 ? find_target(argv[1]) : NULL;
    DIR *dir = run != NULL ? opendir(argv[2]) : NULL;
    unsigned count = 0;

    if (dir == NULL) {
        fputs("usage: seeds TARGET DIRECTORY\n", stderr);
        return 2;
    }
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[2], e->d_name);
        replay(run, path);
        count++;
    }
    closedir(dir);
    printf("%u seeds of %s\n", count, argv[1]);
    return count > 0 ? 0 : 1;
}
