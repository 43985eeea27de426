const boxes=[...document.querySelectorAll('.chip input')];
document.addEventListener('click',e=>{const part=e.target.closest('.series,.col');
const at=part&&/\bs(\d+)\b/.exec(part.getAttribute('class'));
const box=at&&document.getElementById('t'+at[1]);if(box)box.checked=!box.checked});
const dim=(at,on)=>document.querySelectorAll('.plot .series:not(.s'+at+')').forEach(
e=>e.classList.toggle('dim',on));
for(const box of boxes){const chip=box.closest('.chip'),at=box.id.slice(1);
chip.addEventListener('pointerenter',()=>dim(at,true));
chip.addEventListener('pointerleave',()=>dim(at,false))}
const all=document.getElementById('all');if(all){all.hidden=false;
all.addEventListener('click',()=>boxes.forEach(box=>{box.checked=true}))}
