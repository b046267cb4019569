import numpy as np, torch, time, sys
from poslib.lab import results, position_in_circuits as pc, pretrained, circuits
from poslib.lab.llama import open_llama, losses
torch.set_num_threads(1); torch.set_grad_enabled(False)
s=results.load("position_in_circuits")["smollm2"]; before=np.array(s["before"]); names=s["passages"]
heads=pc.chosen(before,names); t=time.time()
m=open_llama(); tok=pretrained.open_tokenizer(pretrained.SMOLLM2); texts=pc.passages(tok,m.settings.vocabulary)
print("ast token0",int(texts["code: ast"][0]),repr(tok.decode([int(texts["code: ast"][0])])),"space",tok.encode(" "),"the",tok.encode(" the"), [repr(tok.decode([int(x)])) for x in texts["code: ast"][:8]], flush=True)
meas=[n for n in names if n not in pc.CHOOSING]
def qk(n,hs): return pc.queries_and_keys(m,texts[n][None],hs)
allh=[(l,h) for l in range(30) for h in range(9)]
# (a) where does the mass go
P=64; near1=[r for r in range(256) if np.cos(r-1)>.8]
agg={h:[] for h in heads}
for n in meas:
    d=qk(n,heads)
    for h in heads:
        T,S=pc.pair_scores(*d[h],m.settings)
        row=[]
        for off,way in (([], "stilled"),(range(1,32),"stilled"),(range(1,32),"zeroed"),(range(4,32),"stilled"),(range(4,32),"zeroed")):
            w=pc.without(T,S,off,way)[0]
            i=torch.arange(256); lag=(i[:,None]-i)
            def mass(mask): return float((w*mask).sum(1)[100:].mean())
            far=(lag>=7)
            res=far&(torch.cos((lag-1).double())>.8)
            row.append([mass(lag==0),mass(lag==1),mass((lag>=2)&(lag<7)),mass(res),mass(far),mass((i[None]==0)&far), float((res[100:].sum(1)/far[100:].sum(1)).double().mean())])
        agg[h].append(row)
print("mass: lag0, lag1, lag2-6, far near-turn (cos(lag-1)>.8), far all, place 0; share of far keys that are near-turn")
for h in heads:
    a=np.mean(agg[h],0)
    for nm,r in zip(("whole","p0 alone stilled","p0 alone zeroed","p0-3 stilled","p0-3 zeroed"),a): print(h,f"{nm:18}",np.round(r,3))
print(time.time()-t,flush=True)
# (b) all heads pair 0
mv=[];near_=[]
for n in ("code: csv","prose: import","random 3"):
    d=qk(n,allh); row=[];pv=[]
    for h in allh:
        T,S=pc.pair_scores(*d[h],m.settings); W=pc.without(T,S,[],"stilled"); V=pc.without(T,S,[0],"stilled")
        row.append(float((W-V).abs().sum(-1)[:,16:].mean()/2))
        pv.append([float(W.diagonal(-l,-2,-1)[:,16-l:].mean()) for l in range(4)])
    mv.append(row); near_.append(pv)
mv=np.mean(mv,0); near_=np.mean(near_,0)
o=np.argsort(-mv)[:40]
print("pair 0 moves most (head, move, lag0..3 mass, in ten):")
for k in o: print(allh[k],round(mv[k],2),np.round(near_[k],2),allh[k] in heads)
print(time.time()-t,flush=True)
