# The row resident of scripts/bench-memory, which sources this: the largest resident set under the
# loads that take most memory beside the items, over engines and limits, beside memcached.
# shellcheck shell=bash

# VmHWM in MiB.
peak_mib() { awk '$1 == "VmHWM:" { printf "%.1f", $2 / 1024 }' "/proc/$PID/status"; }
rss_mib() { awk '$1 == "VmRSS:" { printf "%.1f", $2 / 1024 }' "/proc/$PID/status"; }

# Stores values of 10,000 bytes under k0, k1, and so on, a little more than the limit holds.
fill_resident() { # megabytes
    local value host=${ADDR%:*} port=${ADDR##*:} key reply
    value=$(printf '%010000d' 0)
    exec 5<>"/dev/tcp/$host/$port" || return 1
    for key in $(seq 0 $(($1 * 110))); do printf 'set k%d 0 0 10000 noreply\r\n%s\r\n' "$key" "$value"; done >&5
    printf 'mn\r\n' >&5
    read -r -t 60 reply <&5
    exec 5>&-
    [ "${reply%$'\r'}" = MN ]
}

# Opens connections, and sends each the output of a function. Keeps them open and unread for a while.
with_silent_clients() { # count function argument
    (
        host=${ADDR%:*} port=${ADDR##*:}
        for client in $(seq "$1"); do
            exec {fd}<>"/dev/tcp/$host/$port" || exit 1
            # The rest waits for the server, which does not read it.
            "$2" "$3" "$client" | timeout 2 cat >&"$fd" &
        done
        sleep 3
    )
}
many_gets() { # megabytes client
    local line i
    line=get
    for i in $(seq 50); do line+=" k$((($2 * 50 + i * 37) % ($1 * 90)))"; done
    for i in $(seq 20); do printf '%s\r\n' "$line"; done
}
half_a_line() { printf 'get'; printf ' k%.0s' $(seq 15000); }

resident_load() { # name megabytes
    local out=$work/resident seconds=4
    case $1 in
        pipelined) load "$out" --connections 64 --pipeline 17 --value-size 15000 --set-ratio 1 \
            --keys $(($2 * 200)) --warmup 0 --seconds $seconds ;;
        large) load "$out" --connections 8 --value-size 1000000 --set-ratio 0.5 --keys $(($2 * 3)) \
            --warmup 0 --seconds $seconds ;;
        changing) load "$out" --connections 3 --pipeline 20 --value-size 8-131072 --set-ratio 1 \
            --keys $(($2 * 200)) --warmup 0 --seconds $seconds ;;
        unread) fill_resident "$2" && with_silent_clients 200 many_gets "$2" ;;
        unfinished) fill_resident "$2" && with_silent_clients 200 half_a_line "$2" ;;
    esac
}

row_resident() {
    local name limit load peak after theirs threads=${thread_list:-4}
    threads=${threads%%,*}
    echo "resident: engine, limit, load | largest, afterwards, memcached's largest, MiB | target | verdict"
    for name in ${engine:-relativistic locked global-lock lockhash}; do
        for limit in $(echo "${limits:-16,64,256,1024}" | tr , ' '); do
            for load in pipelined large changing unread unfinished; do
                [[ "$name m$limit $load" =~ $cells ]] || continue
                theirs=-
                if [ "$beside" = 1 ] && command -v memcached >/dev/null; then
                    start_memcached "$limit" "$threads" && resident_load "$load" "$limit" && theirs=$(peak_mib)
                    stop_server
                fi
                start_corewise "${limit}m" "$threads" "$name" && resident_load "$load" "$limit" || return 1
                peak=$(peak_mib)
                sleep 1
                after=$(rss_mib)
                stop_server
                echo "resident: $name, $limit, $load | $peak, $after, $theirs |" \
                    "$(verdict "$peak" "$(awk -v m="$limit" 'BEGIN { printf "%.1f", m * 1.05 + 8 }')" at-most)"
            done
        done
    done
}
