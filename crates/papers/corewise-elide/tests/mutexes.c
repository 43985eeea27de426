/* An ordinary program: what POSIX promises of mutexes and condition variables. Prints one line for
 * each promise; with the argument "where", the library that pthread_mutex_lock comes from; with a
 * number, that number of rounds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 8 };
static int rounds = 2000, items = 500;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long counts[2];
static int queue, produced, consumed;

static void check(const char *what, int holds)
{
    printf("%s: %s\n", what, holds ? "yes" : "NO");
}

static void *add(void *unused)
{
    for (int round = 0; round < rounds; round++) {
        pthread_mutex_lock(&mutex);
        counts[0]++;
        counts[1]++;
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void *produce(void *unused)
{
    for (int item = 0; item < items; item++) {
        pthread_mutex_lock(&mutex);
        while (queue == 4)
            pthread_cond_wait(&changed, &mutex);
        queue++;
        produced++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void *consume(void *unused)
{
    for (int item = 0; item < items; item++) {
        pthread_mutex_lock(&mutex);
        while (queue == 0)
            pthread_cond_wait(&changed, &mutex);
        queue--;
        consumed++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void *try_once(void *result)
{
    *(int *)result = pthread_mutex_trylock(&mutex);
    return NULL;
}

static int tries(void)
{
    pthread_t thread;
    int result = -1;
    pthread_create(&thread, NULL, try_once, &result);
    pthread_join(thread, NULL);
    return result;
}

static void kinds(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t recursive, checking;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checking, &attributes);
    int both = pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&recursive) == 0;
    check("a recursive mutex is locked twice", both);
    both = pthread_mutex_unlock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0;
    check("and unlocked twice", both && pthread_mutex_unlock(&recursive) == EPERM);
    check("a checking mutex is locked once", pthread_mutex_lock(&checking) == 0);
    check("and not again", pthread_mutex_lock(&checking) == EDEADLK);
    check("and unlocked once", pthread_mutex_unlock(&checking) == 0);
    check("and not again", pthread_mutex_unlock(&checking) == EPERM);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    if (argc > 1 && strcmp(argv[1], "where") == 0) {
        Dl_info info;
        dladdr(dlsym(RTLD_DEFAULT, "pthread_mutex_lock"), &info);
        puts(info.dli_fname);
        return 0;
    }
    if (argc > 1)
        rounds = items = atoi(argv[1]);
    for (int number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, add, NULL);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    check("no increment is lost", counts[0] == THREADS * rounds && counts[0] == counts[1]);

    for (int number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, number % 2 ? produce : consume, NULL);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    check("no wake-up is lost", queue == 0 && produced == consumed && produced == 4 * items);

    pthread_mutex_lock(&mutex);
    int result = tries();
    check("a held mutex is busy", result == EBUSY);
    struct timespec past = {0, 0};
    result = pthread_cond_timedwait(&changed, &mutex, &past);
    check("a wait ends at its time", result == ETIMEDOUT);
    result = tries();
    check("and the mutex is held again", result == EBUSY);
    result = pthread_mutex_unlock(&mutex);
    check("it is unlocked", result == 0);
    result = tries();
    check("and then it is free", result == 0);
    kinds();
    return 0;
}
